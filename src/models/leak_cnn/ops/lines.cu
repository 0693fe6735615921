// The first convolution along one column: one channel in. Its work is its results, so a thread makes eight channels of a
// position.
// Which convolutions the kernels along one column do.
#include "models/leak_cnn/ops/lines.cuh"
#include "ops/rewrite.h"

namespace millrace::ops::cuda {
namespace {

constexpr int kFirstThreads = 256, kFirstWarps = kFirstThreads / 32, kFirstSlabs = 512;

struct Neighbours {
    float x[kLineTaps];
};
__device__ Neighbours neighbours(const ConvArgs<bf16>& a, int k, int row, int h) {
    const bf16* x = a.x.row(k, 0, row) + h;
    return {{h > 0 ? load(x - 1) : 0, load(x), h + 1 < a.p.height ? load(x + 1) : 0}};
}

__global__ void __launch_bounds__(kFirstThreads) first_line_forward_kernel(const __grid_constant__ ConvArgs<bf16> a) {
    begin_kernel();
    const ConvParams& p = a.p;
    const int vectors = p.out / 8, o = threadIdx.x % vectors * 8, k = blockIdx.y, step = kFirstThreads / vectors;
    float w[kLineTaps][8], bias[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        bias[i] = a.bias ? a.bias.row(k, 0, 0)[o + i] : 0;
#pragma unroll
        for (int tap = 0; tap < kLineTaps; ++tap) w[tap][i] = load(a.w.row(k, 0, o + i) + tap * p.kernel_w + p.kernel_w / 2);
    }
    const unsigned count = static_cast<unsigned>(a.rows) * p.height;
    for (unsigned at = blockIdx.x * step + threadIdx.x / vectors; at < count; at += gridDim.x * step) {
        const int row = at / static_cast<unsigned>(p.height), h = at - row * p.height;
        const Neighbours n = neighbours(a, k, row, h);
        __align__(16) bf16 y[8];
        __align__(8) std::uint8_t chosen[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float sum = 0;
#pragma unroll
            for (int tap = 0; tap < kLineTaps; ++tap) sum = fmaf(n.x[tap], w[tap][i], sum);
            sum += bias[i];
            const bool none = p.relu && sum <= 0;
            y[i] = __float2bfloat16_rn(none ? 0 : sum);
            chosen[i] = none ? kNothingChosen : 0;
        }
        *reinterpret_cast<uint4*>(a.y.row(k, 0, row) + h * p.out + o) = *reinterpret_cast<const uint4*>(y);
        if (a.chosen)
            *reinterpret_cast<uint2*>(a.chosen.row(k, 0, row) + h * p.out + o) = *reinterpret_cast<const uint2*>(chosen);
    }
}

/// Slab blockIdx.x sums the rows [blockIdx.x * rows_per_slab, + rows_per_slab).
__global__ void __launch_bounds__(kFirstThreads)
    first_line_backward_kernel(const __grid_constant__ ConvArgs<bf16> a, WeightSums sums, int rows_per_slab) {
    extern __shared__ float parts[];  // [warp][tap or bias][out]
    begin_kernel();
    const ConvParams& p = a.p;
    const int vectors = p.out / 8, o = threadIdx.x % vectors * 8, k = blockIdx.y, step = kFirstThreads / vectors;
    float acc[kLineTaps + 1][8] = {};
    const unsigned begin = blockIdx.x * static_cast<unsigned>(rows_per_slab) * p.height,
                   end = min(begin + static_cast<unsigned>(rows_per_slab) * p.height, static_cast<unsigned>(a.rows) * p.height);
#pragma unroll 4
    for (unsigned at = begin + threadIdx.x / vectors; at < end; at += step) {
        const int row = at / static_cast<unsigned>(p.height), h = at - row * p.height;
        __align__(16) bf16 dy[8];
        __align__(8) std::uint8_t chosen[8];
        *reinterpret_cast<uint4*>(dy) = __ldcg(reinterpret_cast<const uint4*>(a.dy.row(k, 0, row) + h * p.out + o));
        *reinterpret_cast<uint2*>(chosen) = __ldcg(reinterpret_cast<const uint2*>(a.chosen.row(k, 0, row) + h * p.out + o));
        const Neighbours n = neighbours(a, k, row, h);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float dz = chosen[i] == 0 ? __bfloat162float(dy[i]) : 0;
#pragma unroll
            for (int tap = 0; tap < kLineTaps; ++tap) acc[tap][i] = fmaf(dz, n.x[tap], acc[tap][i]);
            acc[kLineTaps][i] += dz;
        }
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int tap = 0; tap <= kLineTaps; ++tap)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float sum = acc[tap][i];
            for (int apart = vectors; apart < 32; apart *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
            if (lane < vectors) parts[(warp * (kLineTaps + 1) + tap) * p.out + o + i] = sum;
        }
    __syncthreads();
    float* slab = sums.at(p, a.members, blockIdx.x, k);
    for (int i = threadIdx.x; i < (kLineTaps + 1) * p.out; i += kFirstThreads) {
        float sum = 0;
        for (int w = 0; w < kFirstWarps; ++w) sum += parts[w * (kLineTaps + 1) * p.out + i];
        slab[i] = sum;
    }
}

constexpr int kSumElements = 32, kSumParts = 8;

/// dw and dbias: each element's slabs in kSumParts parts, and these in order.
__global__ void line_sums_kernel(ConvParams p, WeightSums sums, int members, Mat<float> dw, Mat<float> dbias, bool add_dw,
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

Match match_lines(const Context& c, const tensor::Operand& like, const ConvArgs<bf16>& a) {
    const bool fits =
        like.dtype == tensor::DType::bf16 && (takes_first_line(c, a) || (takes_lines(c, a) && has_line_channels(a.p)));
    return Match::first(fits ? 1 : 0);
}

}  // namespace

bool takes_first_line(const Context& c, const ConvArgs<bf16>& a) {
    const ConvParams& p = a.p;
    const bool power = p.out % 8 == 0 && p.out <= 256 && (p.out & (p.out - 1)) == 0;
    return p.in == 1 && power && p.pool_h == 1 && p.relu && p.dropout == 0 && !p.channels_first && a.dx.data == nullptr &&
           std::int64_t{a.rows} * p.height < (1 << 30) && takes_lines(c, a);
}

int first_line_slabs(int rows) { return std::clamp(rows / 4, 1, kFirstSlabs); }

KernelResult make_first_line_forward(Context& c, const ConvArgs<bf16>& a) {
    const unsigned blocks =
        std::min(blocks_for(std::int64_t{a.rows} * a.p.height * a.p.out / 8, kFirstThreads), 8u * c.multiprocessors);
    return make_kernel([stream = c.stream, a, grid = dim3(blocks, static_cast<unsigned>(a.members))] {
        launch(first_line_forward_kernel, grid, dim3(kFirstThreads), 0, stream, a);
    });
}

KernelResult make_first_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums) {
    const std::size_t bytes = sizeof(float) * kFirstWarps * (kLineTaps + 1) * static_cast<std::size_t>(a.p.out);
    const dim3 grid(static_cast<unsigned>(sums.slabs), static_cast<unsigned>(a.members));
    return make_kernel([stream = c.stream, a, sums, bytes, grid, rows = (a.rows + sums.slabs - 1) / sums.slabs] {
        launch(first_line_backward_kernel, grid, dim3(kFirstThreads), bytes, stream, a, sums, rows);
    });
}

KernelResult make_conv_forward(Context& c, const Bound& b);
KernelResult make_conv_backward(Context& c, const Bound& b);

Match match_line_forward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_forward::y], conv_forward_args<bf16>(records[0]));
}

Match match_line_backward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_backward::dy], conv_backward_args<bf16>(records[0]));
}

KernelResult make_line_forward(Context& c, std::span<const Bound> records) {
    const auto a = conv_forward_args<bf16>(records[0]);
    if (takes_first_line(c, a)) return make_first_line_forward(c, a);
    MILLRACE_LET(made, make_line_forward(c, a));
    return made ? KernelResult(std::move(made)) : make_conv_forward(c, records[0]);
}

KernelResult make_line_backward(Context& c, std::span<const Bound> records) {
    using namespace conv_backward;
    const Bound& b = records[0];
    const auto a = conv_backward_args<bf16>(b);
    const bool first = takes_first_line(c, a);
    WeightSums sums;
    sums.depth = LiveTaps(a.p.height, a.p.kernel_h).count * LiveTaps(a.p.width, a.p.kernel_w).count * a.p.in;
    sums.slabs = std::min(first ? first_line_slabs(a.rows) : line_slabs(a.p, a.rows), a.rows);
    const int elements = (sums.depth + 1) * a.p.out;
    MILLRACE_LET(table, zero_table(c, sizeof(float) * std::size_t(sums.slabs) * a.members * elements));
    sums.data = static_cast<float*>(table.get());
    MILLRACE_LET(slabs, first ? make_first_line_backward(c, a, sums) : make_line_backward(c, a, sums));
    if (!slabs) return make_conv_backward(c, b);
    const dim3 grid(blocks_for(elements, kSumElements), static_cast<unsigned>(a.members)), block(kSumElements, kSumParts);
    auto joined = make_launch(c, line_sums_kernel, grid, block, 0, a.p, sums, a.members, b[dw], b[dbias], b.accumulates(dw),
                              b.accumulates(dbias));
    return in_order({std::move(slabs), std::move(joined)}, table);
}

}  // namespace millrace::ops::cuda
