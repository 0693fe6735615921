// Backward convolution along one column: a block sums the weight gradients of its tiles in registers and writes a slab, and makes
// the gradient of x from the same tile.

#include "models/leak_cnn/ops/lines.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kLineSlabs = 128;

struct BackwardArgs {
    ConvArgs<bf16> conv;
    LineTiles tiles;
    WeightSums sums;
    const bf16* weights;  ///< [K][tap][in][out], taps the other way round; null: no gradient of x
    std::size_t bias_at;  ///< bytes of shared memory in front of the threads' sums for the bias
};

/// Gradient of x: a warp makes 32 positions x 32 channels. Weights: 16 channels in of every tap x 8 * kTiles out, of every
/// kGroups-th 16 positions.
template <int kIn, int kOut>
struct BackwardShape {
    static constexpr int kAcrossX = kIn / 32, kPositions = 32 * kConvWarps / kAcrossX;
    static constexpr int kDown = kIn / 16, kAcross = kOut > 64 ? 2 : 1, kTiles = kOut / 8 / kAcross;
    static constexpr int kGroups = kConvWarps / (kDown * kAcross);
    static constexpr int kStrideIn = kIn + kRowPad, kStrideOut = kOut + kRowPad;
    static_assert(kGroups * kDown * kAcross == kConvWarps);

    /// Elements in front of the two places of x, the weights, the raw dy and its chosen, and behind them.
    struct Places {
        int x, weights, dy, chosen, end;
    };
    static __host__ __device__ Places places(const LineTiles& t, int pooled, bool with_dx) {
        Places at{};
        at.x = t.lines() * kStrideOut;
        at.weights = at.x + 2 * t.lines() * kStrideIn;
        at.dy = at.weights + (with_dx ? kLineTaps * kIn * kStrideOut : 0);
        at.chosen = at.dy + t.maps * pooled * kOut;
        at.end = at.chosen + t.maps * pooled * kOut / 2;
        return at;
    }
    /// Bytes of a tile, or afterwards of the groups' sums.
    static std::size_t bytes(const LineTiles& t, int pooled, bool with_dx) {
        return std::max(sizeof(bf16) * std::size_t(places(t, pooled, with_dx).end),
                        sizeof(float) * (kGroups - 1) * kLineTaps * kIn * kOut);
    }
};

/// Begins copies of a tile's dy and chosen as they lie in memory, zeros beyond the batch.
template <int kOut>
__device__ void stage_gradients(const BackwardArgs& m, int k, int tile, bf16* dy, bf16* chosen) {
    const ConvArgs<bf16>& a = m.conv;
    const int per_map = a.p.out_columns() / 8, maps = m.tiles.maps;
    for (int i = threadIdx.x; i < maps * per_map; i += kConvThreads) {
        const int map = i / per_map, row = tile * maps + map, column = (i - map * per_map) * 8;
        copy16(shared_address(dy + 8 * i), a.dy.row(k, 0, min(row, a.rows - 1)) + column, row < a.rows);
        if (i % 2 == 0) copy16(shared_address(chosen + 4 * i), a.chosen.row(k, 0, min(row, a.rows - 1)) + column, row < a.rows);
    }
}

/// dz [lines][kOut + kRowPad] from dy and chosen.
template <int kOut>
__device__ void spread_gradients(const BackwardArgs& m, float factor, const bf16* dy, const bf16* chosen_at, bf16* dz) {
    constexpr int kStride = kOut + kRowPad, kVectors = kOut / 8;
    const ConvParams& p = m.conv.p;
    const LineTiles& t = m.tiles;
    const auto* chosen = reinterpret_cast<const std::uint8_t*>(chosen_at);
    const int positions = p.pooled_h(), count = t.maps * positions * kVectors;
    const auto scaled = [&](bf16 value) { return factor == 1 ? value : __float2bfloat16_rn(factor * __bfloat162float(value)); };
    const bf16 zero = __float2bfloat16_rn(0);
    for (int i = threadIdx.x; i < count; i += kConvThreads) {
        __align__(16) bf16 values[8], out[8];
        __align__(8) std::uint8_t places[8];
        *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(dy + 8 * i);
        *reinterpret_cast<uint2*>(places) = *reinterpret_cast<const uint2*>(chosen + 8 * i);
        if (!p.channels_first) {
            const int at = i / kVectors * p.pool_h;
            for (int q = 0; q < p.pool_h; ++q) {
#pragma unroll
                for (int e = 0; e < 8; ++e) out[e] = places[e] == q ? scaled(values[e]) : zero;
                *reinterpret_cast<uint4*>(dz + t.line_of(at + q) * kStride + i % kVectors * 8) =
                    *reinterpret_cast<const uint4*>(out);
            }
            continue;
        }
        const int per_map = kOut * positions / 8, map = i / per_map, column = (i - map * per_map) * 8, o = column / positions;
        bf16* to = dz + (t.line_of(map * t.height) + (column - o * positions) * p.pool_h) * kStride + o;
#pragma unroll
        for (int e = 0; e < 8; ++e)
            for (int q = 0; q < p.pool_h; ++q) to[(e * p.pool_h + q) * kStride] = places[e] == q ? scaled(values[e]) : zero;
    }
}

/// Sums over the lines of dz: each thread adds a pair of columns over some of them.
template <int kOut>
__device__ void add_bias(const LineTiles& t, const bf16* dz, float (&sums)[2]) {
    for (int line = threadIdx.x / (kOut / 2); line < t.lines(); line += kConvThreads / (kOut / 2)) {
        const auto pair = *reinterpret_cast<const __nv_bfloat162*>(dz + line * (kOut + kRowPad) + threadIdx.x % (kOut / 2) * 2);
        sums[0] += __bfloat162float(pair.x);
        sums[1] += __bfloat162float(pair.y);
    }
}

/// A warp's 32 x 32 part of dx. Neighbouring lanes swap halves of two tiles, so that each has four channels in a row and a line's
/// lanes fill whole sectors.
template <int kIn>
__device__ void write_dx(const BackwardArgs& m, int k, int tile, int down, int across, const float (&acc)[2][4][4]) {
    const ConvArgs<bf16>& a = m.conv;
    const LineTiles& t = m.tiles;
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2 != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int position = down + 16 * i + 8 * half + lane / 4, map = t.map_of(position), row = tile * t.maps + map;
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const std::uint32_t first = pack<bf16>(acc[i][j][2 * half], acc[i][j][2 * half + 1]),
                                    second = pack<bf16>(acc[i][j + 1][2 * half], acc[i][j + 1][2 * half + 1]);
                const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
                if (position >= t.used() || row >= a.rows) continue;
                bf16* to = a.dx.row(k, 0, row) + (position - map * t.height) * kIn + across + 8 * (j + odd) + lane % 4 / 2 * 4;
                *reinterpret_cast<uint2*>(to) = odd ? make_uint2(got, second) : make_uint2(first, got);
            }
        }
}

/// A warp's part of the weights' sums: 16 inputs from `down` on, outputs from `across` on, over every kGroups-th piece of 16
/// positions.
template <int kIn, int kOut>
struct TapSums {
    using Shape = BackwardShape<kIn, kOut>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp % Shape::kGroups;
    int down = warp / Shape::kGroups / Shape::kAcross * 16, across = warp / Shape::kGroups % Shape::kAcross * 8 * Shape::kTiles;
    float acc[kLineTaps][Shape::kTiles][4] = {};

    /// Adds a tile's.
    __device__ __forceinline__ void add(const LineTiles& t, const bf16* x, const bf16* dz) {
        for (int d = 16 * group; d < t.used(); d += 16 * Shape::kGroups) {
            // Positions beyond the last map meet a line of zeros.
            const int left_at = d + lane / 16 * 8 + lane % 8, right_at = d + lane / 8 % 2 * 8 + lane % 8;
            const bf16* left_line =
                x + ((left_at < t.used() ? t.line_of(left_at) : 1) - 1) * Shape::kStrideIn + down + lane / 8 % 2 * 8;
            const bf16* right_line =
                dz + (right_at < t.used() ? t.line_of(right_at) : 0) * Shape::kStrideOut + across + lane / 16 * 8;
            std::uint32_t right[Shape::kTiles / 2][4];
#pragma unroll
            for (int pair = 0; pair < Shape::kTiles / 2; ++pair) load_transposed(right[pair], right_line + 16 * pair);
#pragma unroll
            for (int tap = 0; tap < kLineTaps; ++tap) {
                std::uint32_t left[4];
                load_transposed(left, left_line + tap * Shape::kStrideIn);
#pragma unroll
                for (int pair = 0; pair < Shape::kTiles / 2; ++pair) {
                    mma16<bf16>(acc[tap][2 * pair], left, right[pair][0], right[pair][1]);
                    mma16<bf16>(acc[tap][2 * pair + 1], left, right[pair][2], right[pair][3]);
                }
            }
        }
    }
    template <class Body>
    __device__ __forceinline__ void for_each(Body body) const {
#pragma unroll
        for (int tap = 0; tap < kLineTaps; ++tap)
#pragma unroll
            for (int j = 0; j < Shape::kTiles; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    body((tap * kIn + down + lane / 4 + 8 * half) * kOut + across + 8 * j + lane % 4 * 2, &acc[tap][j][2 * half]);
    }
    /// The groups' sums go through `pile` in shared memory, in order, and so do those of the biases through `bias_parts`.
    __device__ __forceinline__ void put(float* pile, float* bias_parts, const float (&bias)[2], float* slab) const {
        if (group > 0)
            for_each([&](int element, const float* two) {
                *reinterpret_cast<float2*>(pile + (group - 1) * kLineTaps * kIn * kOut + element) = make_float2(two[0], two[1]);
            });
        bias_parts[2 * threadIdx.x] = bias[0];
        bias_parts[2 * threadIdx.x + 1] = bias[1];
        __syncthreads();
        if (group == 0)
            for_each([&](int element, const float* two) {
                float2 sum = make_float2(two[0], two[1]);
                for (int g = 0; g + 1 < Shape::kGroups; ++g) {
                    const float2 part = *reinterpret_cast<const float2*>(pile + g * kLineTaps * kIn * kOut + element);
                    sum.x += part.x;
                    sum.y += part.y;
                }
                *reinterpret_cast<float2*>(slab + element) = sum;
            });
        if (threadIdx.x >= kOut) return;
        float sum = 0;
        for (int part = 0; part < 2 * kConvThreads / kOut; ++part) sum += bias_parts[part * kOut + threadIdx.x];
        slab[kLineTaps * kIn * kOut + threadIdx.x] = sum;
    }
};

/// The gradient of a tile of x.
template <int kIn, int kOut>
__device__ __forceinline__ void put_dx(const BackwardArgs& m, int k, int tile, const bf16* dz, const bf16* weights) {
    using Shape = BackwardShape<kIn, kOut>;
    const LineTiles& t = m.tiles;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int down = warp / Shape::kAcrossX * 32, across = warp % Shape::kAcrossX * 32;
    float sums[2][4][4] = {};
    const bf16* lines[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = down + 16 * i + lane % 16;
        lines[i] = dz + ((position < t.used() ? t.line_of(position) : 1) - 1) * Shape::kStrideOut + lane / 16 * 8;
    }
    multiply_taps<kOut, 4>(sums, {lines[0], lines[1]},
                           weights + (across + lane / 16 * 8 + lane % 8) * Shape::kStrideOut + lane / 8 % 2 * 8, kIn);
    write_dx<kIn>(m, k, tile, down, across, sums);
}

template <int kIn, int kOut>
__global__ void __launch_bounds__(kConvThreads, 1) line_backward_kernel(const __grid_constant__ BackwardArgs m) {
    using Shape = BackwardShape<kIn, kOut>;
    extern __shared__ __align__(16) unsigned char memory[];
    const ConvArgs<bf16>& a = m.conv;
    const LineTiles& t = m.tiles;
    const typename Shape::Places at = Shape::places(t, a.p.pooled_h(), m.weights != nullptr);
    bf16 *dz = reinterpret_cast<bf16*>(memory), *x = dz + at.x, *other = x + t.lines() * Shape::kStrideIn;
    bf16 *weights = dz + at.weights, *dy = dz + at.dy, *chosen = dz + at.chosen;
    const int k = blockIdx.y;
    TapSums<kIn, kOut> taps;
    begin_kernel();
    int tile = blockIdx.x;
    if (m.weights != nullptr) stage_rows<kOut>(m.weights + std::int64_t{k} * kLineTaps * kIn * kOut, kLineTaps * kIn, weights);
    if (tile < t.tiles) {
        stage_maps<kIn>(t, a.x, k, a.rows, tile, x);
        stage_gradients<kOut>(m, k, tile, dy, chosen);
    }
    commit_copies();
    for (int i = threadIdx.x; i < (t.maps + 1) * kOut / 8; i += kConvThreads)
        *reinterpret_cast<uint4*>(dz + i / (kOut / 8) * (t.height + 1) * Shape::kStrideOut + i % (kOut / 8) * 8) =
            make_uint4(0, 0, 0, 0);
    const float factor = dropout_rule(dropout_key(a.dropout(), a.state, k)).factor;
    float bias[2] = {};
    for (; tile < t.tiles; tile += gridDim.x) {
        await_copies<0>();
        __syncthreads();
        spread_gradients<kOut>(m, factor, dy, chosen, dz);
        __syncthreads();
        if (tile + gridDim.x < t.tiles) {
            stage_maps<kIn>(t, a.x, k, a.rows, tile + gridDim.x, other);
            stage_gradients<kOut>(m, k, tile + gridDim.x, dy, chosen);
        }
        commit_copies();
        add_bias<kOut>(t, dz, bias);
        taps.add(t, x, dz);
        if (m.weights != nullptr) put_dx<kIn, kOut>(m, k, tile, dz, weights);
        bf16* const free = x;
        x = other;
        other = free;
        __syncthreads();
    }
    await_copies<0>();
    __syncthreads();
    taps.put(reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + m.bias_at), bias,
             m.sums.at(a.p, a.members, blockIdx.x, k));
}

template <int kIn, int kOut>
KernelResult make_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums) {
    using Shape = BackwardShape<kIn, kOut>;
    BackwardArgs m{a, LineTiles(a.p, a.rows, Shape::kPositions), sums, nullptr, 0};
    m.bias_at = (Shape::bytes(m.tiles, a.p.pooled_h(), a.dx.data != nullptr) + 15) / 16 * 16;
    const std::size_t bytes = m.bias_at + sizeof(float) * 2 * kConvThreads;
    if (bytes > c.shared_limit) return KernelPtr{};
    std::shared_ptr<Kernel> packed;
    if (a.dx.data != nullptr) {
        MILLRACE_LET(made, make_line_weights(c, a, true, m.weights));
        packed = std::move(made);
    }
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(line_backward_kernel<kIn, kOut>)));
    const dim3 grid(static_cast<unsigned>(sums.slabs), static_cast<unsigned>(a.members));
    return make_kernel([stream = c.stream, m, bytes, grid, packed] {
        if (packed) packed->run();
        launch(line_backward_kernel<kIn, kOut>, grid, dim3(kConvThreads), bytes, stream, m);
    });
}

}  // namespace

/// One for each tile, up to about the blocks that run at once: a tile takes 12 us (H200, 64 to 128 channels), a slab 0.06 us of
/// the memory's time.
int line_slabs(const ConvParams& p, int rows) {
    const std::int64_t tiles = std::int64_t{rows} * p.height * p.in / (32 * 32 * kConvWarps);
    return static_cast<int>(std::clamp<std::int64_t>(tiles, 1, kLineSlabs));
}

KernelResult make_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums) {
    return with_line_channels(a.p, [&]<int kIn, int kOut>() { return make_backward<kIn, kOut>(c, a, sums); });
}

bool takes_lines(const Context& c, const ConvArgs<bf16>& a) {
    const ConvParams& p = a.p;
    const bool shape = p.width == 1 && p.pool_w == 1 && p.kernel_h == kLineTaps && p.height > 1 && p.height <= 128 &&
                       (p.pool_h == 1 || p.pool_h == 2) && p.height % p.pool_h == 0 &&
                       (!p.channels_first || p.pooled_h() % 8 == 0) && p.chooses();
    return c.fuse && shape && a.rows > 0 && !a.add_dx && in_whole_runs(a.x) && in_whole_runs(a.y) && in_whole_runs(a.dy) &&
           in_whole_runs(a.dx) && in_whole_runs(a.chosen);
}

}  // namespace millrace::ops::cuda
