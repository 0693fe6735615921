// Forward convolution along one column with pooling, relu and dropout.

#include "models/leak_cnn/ops/lines.cuh"

namespace millrace::ops::cuda {
namespace {

struct ForwardArgs {
    ConvArgs<bf16> conv;
    LineTiles tiles;
    const bf16* weights;  ///< [K][tap][out][in]
    int buffer;           ///< elements of a tile's place in shared memory
};

/// A warp makes 32 positions times 8 * kTiles channels.
template <int kIn, int kOut, int kPool>
struct ForwardShape {
    static constexpr int kAcross = kOut > 64 ? 2 : 1, kTiles = kOut / 8 / kAcross, kPositions = 32 * kConvWarps / kAcross;
    static constexpr int kStrideIn = kIn + kRowPad, kStrideOut = kOut + kRowPad, kStrideChosen = kOut + 16;
    static constexpr int kPooled = kPositions / kPool;

    static int buffer(const LineTiles& t) { return std::max(t.lines() * kStrideIn, kPooled * kStrideOut); }
    static std::size_t bytes(const LineTiles& t) {
        return sizeof(bf16) * (2 * std::size_t(buffer(t)) + kLineTaps * kOut * kStrideIn) + kPooled * kStrideChosen;
    }
};

/// Eight neighbouring elements of y and where they came from.
struct Eight {
    bf16 y[8];
    std::uint8_t chosen[8];
};

/// Dropout from element number `element` on, a multiple of four.
__device__ void drop(const DropoutKey& key, const DropoutRule& rule, std::int64_t element, Eight& values) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const base::Philox4 bits =
            base::random_block(key.seed, key.step, key.micro, key.op, static_cast<std::uint32_t>(element >> 2) + half);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const bool kept = bits.v[i] >= rule.threshold;
            bf16& y = values.y[4 * half + i];
            y = __float2bfloat16_rn(kept ? __bfloat162float(y) * rule.factor : 0);
            if (!kept) values.chosen[4 * half + i] = kNothingChosen;
        }
    }
}

__device__ void write(const ConvArgs<bf16>& a, const DropoutKey& key, const DropoutRule& rule, int k, std::int64_t row,
                      int column, Eight& values) {
    if (rule.threshold != 0) drop(key, rule, row * a.p.out_columns() + column, values);
    *reinterpret_cast<uint4*>(a.y.row(k, 0, row) + column) = *reinterpret_cast<const uint4*>(values.y);
    if (a.chosen) *reinterpret_cast<uint2*>(a.chosen.row(k, 0, row) + column) = *reinterpret_cast<const uint2*>(values.chosen);
}

/// Writes a tile of results, whose dropout is still to come: y [pooled positions][kOut + kRowPad], chosen likewise.
template <int kIn, int kOut, int kPool>
__device__ void write_tile(const ForwardArgs& m, const DropoutKey& key, const DropoutRule& rule, int k, int tile, const bf16* y,
                           const std::uint8_t* chosen) {
    using Shape = ForwardShape<kIn, kOut, kPool>;
    const ConvArgs<bf16>& a = m.conv;
    const LineTiles& t = m.tiles;
    const int positions = t.height / kPool, maps = min(t.maps, a.rows - tile * t.maps);
    __align__(16) Eight values;
    if (!a.p.channels_first) {
        constexpr int kVectors = kOut / 8;
        const int v = threadIdx.x % kVectors * 8;
        for (int at = threadIdx.x / kVectors; at < maps * positions; at += kConvThreads / kVectors) {
            const int map = t.map_of(at * kPool);
            *reinterpret_cast<uint4*>(values.y) = *reinterpret_cast<const uint4*>(y + at * Shape::kStrideOut + v);
            *reinterpret_cast<uint2*>(values.chosen) = *reinterpret_cast<const uint2*>(chosen + at * Shape::kStrideChosen + v);
            write(a, key, rule, k, tile * std::int64_t{t.maps} + map, (at - map * positions) * kOut + v, values);
        }
        return;
    }
    const int vectors = positions / 8, per_map = kOut * vectors;
    for (int i = threadIdx.x; i < maps * per_map; i += kConvThreads) {
        const int map = i / per_map, column = (i - map * per_map) * 8, o = column / positions,
                  at = map * positions + column - o * positions;
#pragma unroll
        for (int q = 0; q < 8; ++q) {
            values.y[q] = y[(at + q) * Shape::kStrideOut + o];
            values.chosen[q] = chosen[(at + q) * Shape::kStrideChosen + o];
        }
        write(a, key, rule, k, tile * std::int64_t{t.maps} + map, column, values);
    }
}

template <int kIn, int kOut, int kPool>
__global__ void __launch_bounds__(kConvThreads, 2) line_forward_kernel(const __grid_constant__ ForwardArgs m) {
    using Shape = ForwardShape<kIn, kOut, kPool>;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ float bias[kOut];
    const ConvArgs<bf16>& a = m.conv;
    const LineTiles& t = m.tiles;
    bf16 *current = reinterpret_cast<bf16*>(memory), *other = current + m.buffer, *weights = other + m.buffer;
    auto* chosen = reinterpret_cast<std::uint8_t*>(weights + kLineTaps * kOut * Shape::kStrideIn);
    const int k = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int down = warp / Shape::kAcross * 32, across = warp % Shape::kAcross * 8 * Shape::kTiles;
    begin_kernel();
    int tile = blockIdx.x;
    stage_rows<kIn>(m.weights + std::int64_t{k} * kLineTaps * kOut * kIn, kLineTaps * kOut, weights);
    if (tile < t.tiles) stage_maps<kIn>(t, a.x, k, a.rows, tile, current);
    commit_copies();
    if (threadIdx.x < kOut) bias[threadIdx.x] = a.bias ? a.bias.row(k, 0, 0)[threadIdx.x] : 0;
    const DropoutKey key = dropout_key(a.dropout(), a.state, k);
    const DropoutRule rule = dropout_rule(key);
    int line[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = down + 16 * i + lane % 16;
        line[i] = position < t.used() ? t.line_of(position) : 1;
    }
    const bf16* b = weights + (across + lane / 16 * 8 + lane % 8) * Shape::kStrideIn + lane / 8 % 2 * 8;
    for (; tile < t.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < t.tiles) stage_maps<kIn>(t, a.x, k, a.rows, tile + gridDim.x, other);
        commit_copies();
        await_copies<1>();
        __syncthreads();
        float acc[2][Shape::kTiles][4] = {};
        const bf16* const lines[2] = {current + (line[0] - 1) * Shape::kStrideIn + lane / 16 * 8,
                                      current + (line[1] - 1) * Shape::kStrideIn + lane / 16 * 8};
        multiply_taps<kIn, Shape::kTiles>(acc, lines, b, kOut);
        __syncthreads();
        // A pair of channels of one pooled position: the larger one, its place.
        const auto keep = [&](int at, int column, const float(&first)[2], const float(&second)[2]) {
            bf16 y[2];
            std::uint8_t place[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const bool later = kPool == 2 && (second[i] > first[i] || second[i] != second[i]);
                const float value = (later ? second[i] : first[i]) + bias[column + i];
                const bool none = a.p.relu && value <= 0;
                y[i] = __float2bfloat16_rn(none ? 0 : value);
                place[i] = static_cast<std::uint8_t>(none ? kNothingChosen : later);
            }
            *reinterpret_cast<__nv_bfloat162*>(current + at * Shape::kStrideOut + column) = __nv_bfloat162(y[0], y[1]);
            *reinterpret_cast<std::uint16_t*>(chosen + at * Shape::kStrideChosen + column) =
                static_cast<std::uint16_t>(place[0] | place[1] << 8);
        };
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < Shape::kTiles; ++j) {
                const int at = down + 16 * i + lane / 4, column = across + 8 * j + lane % 4 * 2;
                const float low[2] = {acc[i][j][0], acc[i][j][1]}, high[2] = {acc[i][j][2], acc[i][j][3]};
                if constexpr (kPool == 1) {
                    keep(at, column, low, low);
                    keep(at + 8, column, high, high);
                } else {  // lines 2 n and 2 n + 1 lie four lanes apart: the even one takes the pair of `low`, the other that of
                          // `high`
                    const bool odd = lane / 4 % 2 != 0;
                    float got[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) got[e] = __shfl_xor_sync(0xffffffffu, odd ? low[e] : high[e], 4);
                    const float first[2] = {odd ? got[0] : low[0], odd ? got[1] : low[1]},
                                second[2] = {odd ? high[0] : got[0], odd ? high[1] : got[1]};
                    keep((at - odd) / 2 + (odd ? 4 : 0), column, first, second);
                }
            }
        __syncthreads();
        write_tile<kIn, kOut, kPool>(m, key, rule, k, tile, current, chosen);
        __syncthreads();
        bf16* const free = current;
        current = other;
        other = free;
    }
}

template <int kIn, int kOut, int kPool>
KernelResult make_forward(Context& c, const ConvArgs<bf16>& a) {
    using Shape = ForwardShape<kIn, kOut, kPool>;
    ForwardArgs m{a, LineTiles(a.p, a.rows, Shape::kPositions), nullptr, 0};
    m.buffer = Shape::buffer(m.tiles);
    const std::size_t bytes = Shape::bytes(m.tiles);
    if (bytes > c.shared_limit) return KernelPtr{};
    MILLRACE_LET(packed, make_line_weights(c, a, false, m.weights));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(line_forward_kernel<kIn, kOut, kPool>)));
    const dim3 grid(std::min(static_cast<unsigned>(m.tiles.tiles), static_cast<unsigned>(2 * c.multiprocessors)),
                    static_cast<unsigned>(a.members));
    return make_kernel([stream = c.stream, m, bytes, grid, packed = std::shared_ptr<Kernel>(std::move(packed))] {
        packed->run();
        launch(line_forward_kernel<kIn, kOut, kPool>, grid, dim3(kConvThreads), bytes, stream, m);
    });
}

__global__ void line_weights_kernel(ConvParams p, Mat<const bf16> w, bool back, bf16* to) {
    begin_kernel();
    const int all = kLineTaps * p.in * p.out, inner = back ? p.out : p.in, outer = back ? p.in : p.out, k = blockIdx.y;
    for (int i = blockIdx.x * kConvThreads + threadIdx.x; i < all; i += gridDim.x * kConvThreads) {
        const int low = i % inner, high = i / inner % outer, tap = i / (inner * outer);
        const int o = back ? low : high, from = back ? high : low;
        to[std::int64_t{k} * all + i] =
            w.row(k, 0, o)[(from * kLineTaps + (back ? kLineTaps - 1 - tap : tap)) * p.kernel_w + p.kernel_w / 2];
    }
}

}  // namespace

KernelResult make_line_weights(Context& c, const ConvArgs<bf16>& a, bool back, const bf16*& to) {
    const std::size_t all = std::size_t(kLineTaps) * a.p.in * a.p.out;
    MILLRACE_LET(table, zero_table(c, sizeof(bf16) * all * a.members));
    to = static_cast<const bf16*>(table.get());
    return make_launch(c, line_weights_kernel, dim3(blocks_for(all, kConvThreads), static_cast<unsigned>(a.members)),
                       dim3(kConvThreads), 0, a.p, a.w, back, table);
}

KernelResult make_line_forward(Context& c, const ConvArgs<bf16>& a) {
    const auto by_pool = [&]<int kIn, int kOut>() {
        return a.p.pool_h == 2 ? make_forward<kIn, kOut, 2>(c, a) : make_forward<kIn, kOut, 1>(c, a);
    };
    return with_line_channels(a.p, by_pool);
}

}  // namespace millrace::ops::cuda
