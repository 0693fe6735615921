// Convolutions of any shape and precision, one output element per thread. The tensor cores' kernels take what they can.

#include "ops/conv/launch.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256, kWarps = kThreads / 32, kDepthTile = 8;

template <class Real>
__global__ void conv_forward_kernel(ConvArgs<Real> a) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int k = blockIdx.y, positions = p.pooled_h() * p.pooled_w();
    const DropoutKey key = dropout_key(a.dropout(), a.state, k);
    const std::int64_t count = std::int64_t{a.rows} * positions * p.out;
    for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * kThreads) {
        const int o = static_cast<int>(i % p.out), at = static_cast<int>(i / p.out % positions);
        const std::int64_t row = i / p.out / positions;
        const Real *x = a.x.row(k, 0, row), *w = a.w.row(k, 0, o);
        float largest = 0;
        int found = 0;
        for (int place = 0; place < p.pool_h * p.pool_w; ++place) {
            const int h = at / p.pooled_w() * p.pool_h + place / p.pool_w, v = at % p.pooled_w() * p.pool_w + place % p.pool_w;
            float sum = 0;
            for (int ti = 0; ti < p.kernel_h; ++ti) {
                const int from_h = h + ti - p.kernel_h / 2;
                if (from_h < 0 || from_h >= p.height) continue;
                for (int tj = 0; tj < p.kernel_w; ++tj) {
                    const int from_w = v + tj - p.kernel_w / 2;
                    if (from_w < 0 || from_w >= p.width) continue;
                    const Real* from = x + (std::int64_t{from_h} * p.width + from_w) * p.in;
                    for (int c = 0; c < p.in; ++c)
                        sum += load(from + c) * load(w + (std::int64_t{c} * p.kernel_h + ti) * p.kernel_w + tj);
                }
            }
            if (place > 0 && !(sum > largest || sum != sum)) continue;
            largest = sum;
            found = place;
        }
        if (a.bias) largest += a.bias.row(k, 0, 0)[o];
        const std::int64_t column = p.column(at, o);
        const float factor = dropout_factor(key, static_cast<std::uint64_t>(row * p.out_columns() + column));
        const bool none = factor == 0 || (p.relu && largest <= 0);
        if (a.chosen) a.chosen.row(k, 0, row)[column] = static_cast<std::uint8_t>(none ? kNothingChosen : found);
        store(a.y.row(k, 0, row) + column, none ? 0 : largest * factor);
    }
}

template <class Real>
__global__ void conv_dgrad_kernel(ConvArgs<Real> a) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int k = blockIdx.y;
    const float scale = dropout_rule(dropout_key(a.dropout(), a.state, k)).factor;
    const std::int64_t count = std::int64_t{a.rows} * p.in_columns();
    for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * kThreads) {
        const int c = static_cast<int>(i % p.in), v = static_cast<int>(i / p.in % p.width),
                  h = static_cast<int>(i / p.in / p.width % p.height);
        const std::int64_t row = i / p.in_columns();
        float sum = 0;
        for (int ti = 0; ti < p.kernel_h; ++ti) {
            const int to_h = h - ti + p.kernel_h / 2;
            if (to_h < 0 || to_h >= p.height) continue;
            for (int tj = 0; tj < p.kernel_w; ++tj) {
                const int to_w = v - tj + p.kernel_w / 2;
                if (to_w < 0 || to_w >= p.width) continue;
                const std::int64_t tap = (std::int64_t{c} * p.kernel_h + ti) * p.kernel_w + tj;
                for (int o = 0; o < p.out; ++o) sum += scale * a.dz(k, row, to_h, to_w, o) * load(a.w.row(k, 0, o) + tap);
            }
        }
        Real* to = a.dx.row(k, 0, row) + i % p.in_columns();
        store(to, a.add_dx ? load(to) + sum : sum);
    }
}

/// Part [slab, kDepthTile rows of the sums, 32 channels] of one member: a lane per channel, warps share the slab's positions.
template <class Real>
__global__ void conv_wgrad_kernel(ConvArgs<Real> a, WeightSums sums, int rows_per_slab) {
    begin_kernel();
    __shared__ float partial[kWarps][kDepthTile][32];
    const ConvParams& p = a.p;
    const LiveTaps taps_h(p.height, p.kernel_h), taps_w(p.width, p.kernel_w);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks_out = (p.out + 31) / 32;
    const int k = blockIdx.z / blocks_out, o = blockIdx.z % blocks_out * 32 + lane, first = blockIdx.y * kDepthTile;
    const float scale = dropout_rule(dropout_key(a.dropout(), a.state, k)).factor;
    int from_h[kDepthTile], from_w[kDepthTile], channel[kDepthTile];
    for (int d = 0; d < kDepthTile; ++d) {
        const int tap = (first + d) / p.in;
        channel[d] = (first + d) % p.in;
        from_h[d] = tap / taps_w.count - taps_h.before;
        from_w[d] = tap % taps_w.count - taps_w.before;
    }
    float acc[kDepthTile] = {};
    const std::int64_t map = std::int64_t{p.height} * p.width, begin = blockIdx.x * std::int64_t{rows_per_slab} * map,
                       end = min(begin + rows_per_slab * map, a.rows * map);
    for (std::int64_t i = begin + warp; i < end && o < p.out; i += kWarps) {
        const std::int64_t row = i / map;
        const int h = static_cast<int>(i % map) / p.width, v = static_cast<int>(i % map) % p.width;
        const float dz = scale * a.dz(k, row, h, v, o);
        const Real* x = a.x.row(k, 0, row);
        for (int d = 0; d < kDepthTile; ++d) {
            if (first + d == sums.depth) acc[d] += dz;
            const int hh = h + from_h[d], ww = v + from_w[d];
            if (first + d < sums.depth && hh >= 0 && hh < p.height && ww >= 0 && ww < p.width)
                acc[d] += dz * load(x + (std::int64_t{hh} * p.width + ww) * p.in + channel[d]);
        }
    }
    for (int d = 0; d < kDepthTile; ++d) partial[warp][d][lane] = acc[d];
    __syncthreads();
    if (first + warp > sums.depth || o >= p.out) return;
    static_assert(kWarps == kDepthTile);
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][warp][lane];
    sums.at(p, a.members, blockIdx.x, k)[std::int64_t{first + warp} * p.out + o] = sum;
}

constexpr int kSumElements = 32, kSumParts = 8;

/// dw and dbias: each element's slabs in kSumParts parts, and these in order.
__global__ void conv_sums_kernel(ConvParams p, WeightSums sums, int members, Mat<float> dw, Mat<float> dbias, bool add_dw,
                                 bool add_dbias) {
    begin_kernel();
    __shared__ float parts[kSumParts][kSumElements];
    const int k = blockIdx.y, i = blockIdx.x * kSumElements + threadIdx.x, all = (sums.depth + 1) * p.out;
    float sum = 0;
#pragma unroll 4
    for (int slab = threadIdx.y; slab < sums.slabs && i < all; slab += kSumParts) sum += __ldcg(sums.at(p, members, slab, k) + i);
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || i >= all) return;
    for (int part = 1; part < kSumParts; ++part) sum += parts[part][threadIdx.x];
    const int o = i % p.out, d = i / p.out;
    if (d == sums.depth) {
        float* to = dbias.row(k, 0, 0) + o;
        if (dbias) *to = add_dbias ? *to + sum : sum;
        return;
    }
    const LiveTaps taps_h(p.height, p.kernel_h), taps_w(p.width, p.kernel_w);
    const int tap = d / p.in, live_h = taps_h.first + tap / taps_w.count, live_w = taps_w.first + tap % taps_w.count;
    float* to = dw.row(k, 0, o) + std::int64_t{d % p.in} * p.kernel_h * p.kernel_w;
    float* live = to + live_h * p.kernel_w + live_w;
    *live = add_dw ? *live + sum : sum;
    if (tap > 0 || add_dw) return;
    for (int h = 0; h < p.kernel_h; ++h)  // taps that meet nothing but the outside
        for (int w = 0; w < p.kernel_w; ++w)
            if (h < taps_h.first || h >= taps_h.first + taps_h.count || w < taps_w.first || w >= taps_w.first + taps_w.count)
                to[h * p.kernel_w + w] = 0;
}

dim3 conv_grid(std::int64_t work, int members) {
    return dim3(std::min(std::max(1u, blocks_for(work, kThreads)), 8192u), static_cast<unsigned>(members));
}

}  // namespace

KernelResult make_conv_forward(Context& c, const Bound& b) {
    if (b[conv_forward::y].dtype == tensor::DType::bf16) {
        const auto a = conv_forward_args<bf16>(b);
        if (takes_conv_tiles(c, a)) {
            MILLRACE_LET(made, make_conv_maps(c, a, false));
            if (made) return KernelResult(std::move(made));
        }
    }
    return by_real(b[conv_forward::y].dtype, [&](auto real) -> KernelResult {
        const auto a = conv_forward_args<decltype(real)>(b);
        return make_kernel([stream = c.stream, a] {
            launch(conv_forward_kernel<decltype(real)>, conv_grid(std::int64_t{a.rows} * a.p.out_columns(), a.members),
                   dim3(kThreads), 0, stream, a);
        });
    });
}

namespace {

template <class Real>
ConvProducts plain_parts(Context& c, const ConvArgs<Real>& a, const WeightSums& sums) {
    ConvProducts parts;
    const int per_slab = sums.slabs > 0 ? (a.rows + sums.slabs - 1) / sums.slabs : 1;
    const dim3 grid(static_cast<unsigned>(sums.slabs), blocks_for(sums.depth + 1, kDepthTile),
                    static_cast<unsigned>(a.members) * blocks_for(a.p.out, 32));
    parts.sums = make_kernel([=, stream = c.stream] {
        if (sums.slabs > 0) launch(conv_wgrad_kernel<Real>, grid, dim3(kThreads), 0, stream, a, sums, per_slab);
    });
    if (a.dx.data == nullptr || a.rows == 0) return parts;
    parts.dx = make_kernel([=, stream = c.stream] {
        launch(conv_dgrad_kernel<Real>, conv_grid(std::int64_t{a.rows} * a.p.in_columns(), a.members), dim3(kThreads), 0, stream,
               a);
    });
    return parts;
}

base::Result<ConvProducts> tile_parts(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums) {
    ConvProducts parts = plain_parts(c, a, sums);
    if (!takes_conv_tiles(c, a)) return parts;
    MILLRACE_LET(made, make_conv_weight_sums(c, a, sums));
    if (made) parts.sums = std::move(made);
    if (!parts.dx) return parts;
    MILLRACE_LET(back, make_conv_maps(c, a, true));
    if (back) parts.dx = std::move(back);
    return parts;
}

}  // namespace

base::Result<ConvSlabs> make_slabs(Context& c, const Bound& b, int slabs) {
    const auto& p = b.params<ConvParams>();
    const tensor::Operand& dy = b[conv_backward::dy];
    WeightSums sums;
    sums.depth = LiveTaps(p.height, p.kernel_h).count * LiveTaps(p.width, p.kernel_w).count * p.in;
    sums.slabs = std::min(slabs, dy.rows);
    const std::size_t floats = std::size_t(sums.slabs) * dy.k * (sums.depth + 1) * p.out;
    MILLRACE_LET(table, zero_table(c, std::max<std::size_t>(floats, 1) * sizeof(float)));
    sums.data = static_cast<float*>(table.get());
    return ConvSlabs{sums, table};
}

KernelResult finish_conv_backward(Context& c, const Bound& b, const ConvSlabs& slabs, const ConvProducts& products) {
    using namespace conv_backward;
    return make_kernel([=, stream = c.stream, p = b.params<ConvParams>(), members = b[dy].k, to_w = Mat<float>(b[dw]),
                        to_bias = Mat<float>(b[dbias]), add_w = b.accumulates(dw), add_bias = b.accumulates(dbias)] {
        const WeightSums& sums = slabs.sums;  // whose memory lives as long as the kernel
        products.sums->run();
        launch(conv_sums_kernel, dim3(blocks_for((sums.depth + 1) * p.out, kSumElements), static_cast<unsigned>(members)),
               dim3(kSumElements, kSumParts), 0, stream, p, sums, members, to_w, to_bias, add_w, add_bias);
        if (products.dx) products.dx->run();
    });
}

KernelResult make_conv_backward(Context& c, const Bound& b) {
    const tensor::Operand& dy = b[conv_backward::dy];
    MILLRACE_LET(slabs, make_slabs(c, b, conv_slabs(b.params<ConvParams>(), dy.rows)));
    if (dy.dtype != tensor::DType::bf16)
        return by_real(dy.dtype, [&]<class T>(T) {
            return finish_conv_backward(c, b, slabs, plain_parts(c, conv_backward_args<T>(b), slabs.sums));
        });
    MILLRACE_LET(parts, tile_parts(c, conv_backward_args<bf16>(b), slabs.sums));
    return finish_conv_backward(c, b, slabs, parts);
}

}  // namespace millrace::ops::cuda
