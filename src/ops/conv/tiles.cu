// The two products of a convolution from maps to maps on tensor cores: forward, and the gradient of x.

#include "ops/conv/launch.cuh"
#include "ops/conv/tiles.cuh"

namespace millrace::ops::cuda {
namespace {

struct MapsArgs {
    ConvArgs<bf16> conv;
    ConvTiling tiling;
    int chunk;          ///< channels of the summed side at once
    int weight_offset;  ///< elements of shared memory in front of the weights
};

/// A warp makes 32 positions times 8 * kTiles channels; kAcross warps stand side by side.
template <bool kBack, int kTiles, int kAcross>
struct MapsShape {
    static constexpr int kColumns = 8 * kTiles * kAcross, kPositions = 32 * kConvWarps / kAcross;
    static constexpr int kStride = kColumns + 4;  ///< floats of a row of results
};

/// The weights of `chunk` summed channels from `c` on and kColumns results from `n` on: [tap][result][chunk + kRowPad].
template <bool kBack, int kColumns>
__device__ void stage_weights(const MapsArgs& m, int k, int c, int n, bf16* to) {
    const ConvParams& p = m.conv.p;
    const ConvTiling& t = m.tiling;
    const int results = kBack ? p.in : p.out, taps = t.taps();
    for (int i = threadIdx.x; i < kColumns * m.chunk; i += kConvThreads) {
        const int result = n + i / m.chunk, channel = c + i % m.chunk, o = kBack ? channel : result,
                  from = kBack ? result : channel;
        const bf16* w = result < results ? m.conv.w.row(k, 0, o) + std::int64_t{from} * p.kernel_h * p.kernel_w : nullptr;
        for (int tap = 0; tap < taps; ++tap) {
            // A gradient meets the taps the other way round.
            const int which = kBack ? taps - 1 - tap : tap, ti = t.taps_h.first + which / t.taps_w.count,
                      tj = t.taps_w.first + which % t.taps_w.count;
            to[(tap * kColumns + i / m.chunk) * (m.chunk + kRowPad) + i % m.chunk] =
                w != nullptr ? w[ti * p.kernel_w + tj] : __float2bfloat16_rn(0);
        }
    }
}

/// Pooling, relu and dropout of the results [positions, kStride].
template <int kColumns, int kStride>
__device__ void finish_forward(const MapsArgs& m, int k, int tile, int n, const float* results) {
    const ConvArgs<bf16>& a = m.conv;
    const ConvParams& p = a.p;
    const ConvTiling& t = m.tiling;
    const DropoutKey key = dropout_key(a.dropout(), a.state, k);
    const int lines = t.rows / p.pool_h, per_map = lines * p.pooled_w(), columns = min(kColumns, p.out - n);
    const int positions = t.maps * per_map;
    for (int i = threadIdx.x; i < positions * columns; i += kConvThreads) {
        // Neighbouring threads write neighbouring elements.
        const int at = p.channels_first ? i % positions : i / columns, o = p.channels_first ? i / positions : i % columns;
        const int line = at % per_map / p.pooled_w(), column_w = at % p.pooled_w();
        const int first = at / per_map * t.rows * p.width + line * p.pool_h * p.width + column_w * p.pool_w;
        const ConvPosition where = position_in(p, t, a.rows, tile, first);
        if (where.row < 0 || where.h / p.pool_h >= p.pooled_h()) continue;
        float largest = results[first * kStride + o];
        int found = 0;
        for (int place = 1; place < p.pool_h * p.pool_w; ++place) {
            const float value = results[(first + place / p.pool_w * p.width + place % p.pool_w) * kStride + o];
            if (value > largest || value != value) {
                largest = value;
                found = place;
            }
        }
        if (a.bias) largest += a.bias.row(k, 0, 0)[n + o];
        const std::int64_t column = p.column(where.h / p.pool_h * p.pooled_w() + column_w, n + o);
        const float factor = dropout_factor(key, static_cast<std::uint64_t>(where.row * p.out_columns() + column));
        const bool none = factor == 0 || (p.relu && largest <= 0);
        if (a.chosen) a.chosen.row(k, 0, where.row)[column] = static_cast<std::uint8_t>(none ? kNothingChosen : found);
        store(a.y.row(k, 0, where.row) + column, none ? 0 : largest * factor);
    }
}

template <int kColumns, int kStride>
__device__ void finish_back(const MapsArgs& m, int k, int tile, int n, const float* results) {
    const ConvArgs<bf16>& a = m.conv;
    const ConvParams& p = a.p;
    const int columns = min(kColumns, p.in - n), positions = m.tiling.maps * m.tiling.rows * p.width;
    for (int i = threadIdx.x; i < positions * columns; i += kConvThreads) {
        const int at = i / columns, c = i % columns;
        const ConvPosition where = position_in(p, m.tiling, a.rows, tile, at);
        if (where.row < 0) continue;
        bf16* to = a.dx.row(k, 0, where.row) + (std::int64_t{where.h} * p.width + where.w) * p.in + n + c;
        const float value = results[at * kStride + c];
        store(to, a.add_dx ? load(to) + value : value);
    }
}

template <bool kBack, int kTiles, int kAcross>
__global__ void __launch_bounds__(kConvThreads, 2) conv_maps_kernel(const __grid_constant__ MapsArgs m) {
    using Shape = MapsShape<kBack, kTiles, kAcross>;
    extern __shared__ __align__(16) unsigned char memory[];
    bf16* region = reinterpret_cast<bf16*>(memory);
    bf16* weights = region + m.weight_offset;
    auto* results = reinterpret_cast<float*>(memory);
    begin_kernel();
    const ConvArgs<bf16>& a = m.conv;
    const ConvParams& p = a.p;
    const ConvTiling& t = m.tiling;
    const int k = blockIdx.z, n = blockIdx.y * Shape::kColumns, summed = kBack ? p.out : p.in, stride = m.chunk + kRowPad;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = warp / kAcross * 32, across = warp % kAcross * 8 * kTiles;
    const float scale = kBack ? dropout_rule(dropout_key(a.dropout(), a.state, k)).factor : 1;
    const int used = t.maps * t.rows * p.width;
    const bf16* a_row[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = down + 16 * i + lane % 16;
        a_row[i] = region + (position < used ? t.region_of(p, position) : 0) * stride + lane / 16 * 8;
    }
    const bf16* b_row = weights + (across + lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
    const bool one_chunk = summed == m.chunk;
    if (one_chunk) stage_weights<kBack, Shape::kColumns>(m, k, 0, n, weights);
    for (int tile = blockIdx.x; tile < t.tiles; tile += gridDim.x) {
        float acc[2][kTiles][4] = {};
        for (int c = 0; c < summed; c += m.chunk) {
            const int vectors = m.chunk / 8;
            for (int i = threadIdx.x; i < t.region() * vectors; i += kConvThreads) {
                const ConvPosition at = region_position(p, t, a.rows, tile, i / vectors);
                *reinterpret_cast<uint4*>(region + i / vectors * stride + i % vectors * 8) =
                    kBack ? eight_of_dz(a, scale, k, at, c + i % vectors * 8) : eight_of_x(a, k, at, c + i % vectors * 8);
            }
            if (!one_chunk) stage_weights<kBack, Shape::kColumns>(m, k, c, n, weights);
            __syncthreads();
            for (int tap = 0; tap < t.taps(); ++tap) {
                const int shift = t.tap_offset(tap) * stride;
                for (int d = 0; d < m.chunk; d += 16) {
                    std::uint32_t left[2][4];
#pragma unroll
                    for (int i = 0; i < 2; ++i) load_matrices(left[i], a_row[i] + shift + d);
#pragma unroll
                    for (int pair = 0; pair < kTiles / 2; ++pair) {
                        std::uint32_t right[4];
                        load_matrices(right, b_row + (tap * Shape::kColumns + 16 * pair) * stride + d);
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            mma16<bf16>(acc[i][2 * pair], left[i], right[0], right[1]);
                            mma16<bf16>(acc[i][2 * pair + 1], left[i], right[2], right[3]);
                        }
                    }
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < kTiles; ++j) {
                float* to = results + (down + 16 * i + lane / 4) * Shape::kStride + across + 8 * j + lane % 4 * 2;
                to[0] = acc[i][j][0];
                to[1] = acc[i][j][1];
                to[8 * Shape::kStride] = acc[i][j][2];
                to[8 * Shape::kStride + 1] = acc[i][j][3];
            }
        __syncthreads();
        if constexpr (kBack)
            finish_back<Shape::kColumns, Shape::kStride>(m, k, tile, n, results);
        else
            finish_forward<Shape::kColumns, Shape::kStride>(m, k, tile, n, results);
        __syncthreads();
    }
}

/// Absent: the shape does not fit.
template <bool kBack, int kTiles, int kAcross>
base::Result<KernelPtr> make_maps(Context& c, const ConvArgs<bf16>& args) {
    using Shape = MapsShape<kBack, kTiles, kAcross>;
    const ConvParams& p = args.p;
    MapsArgs m{args, ConvTiling(p, args.rows, Shape::kPositions), conv_chunk(kBack ? p.out : p.in), 0};
    const std::size_t results = sizeof(float) * Shape::kPositions * Shape::kStride;
    const std::size_t region = sizeof(bf16) * std::size_t(m.tiling.region()) * (m.chunk + kRowPad);
    const std::size_t in_front = (std::max(results, region) + 15) / 16 * 16;
    m.weight_offset = static_cast<int>(in_front / sizeof(bf16));
    const std::size_t bytes = in_front + sizeof(bf16) * std::size_t(m.tiling.taps()) * Shape::kColumns * (m.chunk + kRowPad);
    if (!m.tiling.fits() || bytes > c.shared_limit) return KernelPtr{};
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(conv_maps_kernel<kBack, kTiles, kAcross>)));
    const unsigned columns = blocks_for(kBack ? p.in : p.out, Shape::kColumns), members = static_cast<unsigned>(args.members);
    const auto blocks = std::min(static_cast<unsigned>(m.tiling.tiles), static_cast<unsigned>(2 * c.multiprocessors));
    return make_kernel([stream = c.stream, m, bytes, grid = dim3(std::max(blocks, 1u), columns, members)] {
        launch(conv_maps_kernel<kBack, kTiles, kAcross>, grid, dim3(kConvThreads), bytes, stream, m);
    });
}

}  // namespace

bool takes_conv_tiles(const Context& c, const ConvArgs<bf16>& a) {
    return c.fuse && a.p.in % 16 == 0 && a.p.out % 16 == 0 && a.rows > 0 && in_whole_runs(a.x);
}

base::Result<KernelPtr> make_conv_maps(Context& c, const ConvArgs<bf16>& a, bool back) {
    const int columns = back ? a.p.in : a.p.out;
    if (back) {
        if (columns <= 32) return make_maps<true, 4, 1>(c, a);
        return columns <= 64 ? make_maps<true, 8, 1>(c, a) : make_maps<true, 8, 2>(c, a);
    }
    if (columns <= 32) return make_maps<false, 4, 1>(c, a);
    return columns <= 64 ? make_maps<false, 8, 1>(c, a) : make_maps<false, 8, 2>(c, a);
}

}  // namespace millrace::ops::cuda
