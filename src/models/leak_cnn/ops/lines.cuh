#pragma once
// Convolutions of three taps along maps of one column, on tensor cores (bf16). A tile is some whole maps in shared memory,
// channels last, with a line of zeros in front of, between and behind them: a tap is an offset of one line.

#include "ops/conv/conv_args.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/context.h"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {

constexpr int kLineTaps = 3;
constexpr int kConvThreads = 256, kConvWarps = kConvThreads / 32;
constexpr int kRowPad = 8;  ///< elements behind a position's channels: eight rows of a fragment then lie in different banks

/// Whether rows of a matrix of one group begin at multiples of 16 bytes; an absent one does not matter.
template <class T>
bool in_whole_runs(const Mat<T>& m) {
    constexpr std::int64_t kElements = 16 / sizeof(T);
    return m.data == nullptr ||
           (reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 && m.stride_row % kElements == 0 && m.stride_k % kElements == 0);
}

/// The sum of a convolution's weight gradients over `slabs` parts [slab][K][D + 1][out], D rows of taps and channels and one of
/// the bias.
struct WeightSums {
    float* data = nullptr;
    int slabs = 0, depth = 0;
    [[nodiscard]] __device__ float* at(const ConvParams& p, int members, int slab, int k) const {
        return data + (std::int64_t{slab} * members + k) * (depth + 1) * p.out;
    }
};

struct LineTiles {
    int height, maps, tiles, inverse;  ///< of a map; maps of a tile; tiles of the batch; ceil(2^16 / height)

    /// Tiles of at most `positions` <= 256 positions.
    LineTiles(const ConvParams& p, int batch, int positions)
        : height(p.height),
          maps(positions / p.height),
          tiles((batch + maps - 1) / std::max(maps, 1)),
          inverse((65536 + p.height - 1) / p.height) {}
    [[nodiscard]] __host__ __device__ int used() const { return maps * height; }
    [[nodiscard]] __host__ __device__ int lines() const { return maps * (height + 1) + 1; }
    /// position / height for positions below 256.
    [[nodiscard]] __device__ int map_of(int position) const { return position * inverse >> 16; }
    [[nodiscard]] __device__ int line_of(int position) const { return position + map_of(position) + 1; }
};

/// Begins copies of `rows` rows of kChannels elements, one behind the other at `from`, to rows of kChannels + kRowPad.
template <int kChannels>
__device__ void stage_rows(const bf16* from, int rows, bf16* to) {
    constexpr int kVectors = kChannels / 8;
    const std::uint32_t base = shared_address(to);
    for (int i = threadIdx.x; i < rows * kVectors; i += kConvThreads)
        copy16(base + 2 * (i / kVectors * (kChannels + kRowPad) + i % kVectors * 8), from + 8 * i, true);
}

/// Begins copies of the maps of a tile, zeros beyond the batch, and writes the lines between them.
template <int kChannels>
__device__ void stage_maps(const LineTiles& t, const Mat<const bf16>& from, int k, int batch, int tile, bf16* to) {
    constexpr int kVectors = kChannels / 8, kStride = kChannels + kRowPad;
    const int v = threadIdx.x % kVectors * 8;
    const std::uint32_t base = shared_address(to + v);
    for (int position = threadIdx.x / kVectors; position < t.used(); position += kConvThreads / kVectors) {
        const int map = t.map_of(position), row = tile * t.maps + map;
        const bf16* source = from.row(k, 0, min(row, batch - 1)) + (position - map * t.height) * kChannels + v;
        copy16(base + 2 * (position + map + 1) * kStride, source, row < batch);
    }
    for (int i = threadIdx.x; i < (t.maps + 1) * kVectors; i += kConvThreads)
        *reinterpret_cast<uint4*>(to + i / kVectors * (t.height + 1) * kStride + i % kVectors * 8) = make_uint4(0, 0, 0, 0);
}

/// acc += lines x weights: rows of `a` (two of 16 lines, at their first tap) times rows of `b`, both [.][kSummed + kRowPad]; the
/// taps' weights are `tap_rows` rows apart.
template <int kSummed, int kTiles>
__device__ void multiply_taps(float (&acc)[2][kTiles][4], const bf16* const (&a)[2], const bf16* b, int tap_rows) {
    constexpr int kStride = kSummed + kRowPad;
#pragma unroll
    for (int tap = 0; tap < kLineTaps; ++tap)
#pragma unroll
        for (int d = 0; d < kSummed; d += 16) {
            std::uint32_t left[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) load_matrices(left[i], a[i] + tap * kStride + d);
#pragma unroll
            for (int pair = 0; pair < kTiles / 2; ++pair) {
                std::uint32_t right[4];
                load_matrices(right, b + (tap * tap_rows + 16 * pair) * kStride + d);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    mma16<bf16>(acc[i][2 * pair], left[i], right[0], right[1]);
                    mma16<bf16>(acc[i][2 * pair + 1], left[i], right[2], right[3]);
                }
            }
        }
}

/// Calls f<in, out>() with the channels of p where there are kernels for them, else gives null.
template <class F>
KernelResult with_line_channels(const ConvParams& p, F f) {
    if (p.in == 32 && p.out == 32) return f.template operator()<32, 32>();
    if (p.in == 32 && p.out == 64) return f.template operator()<32, 64>();
    if (p.in == 64 && p.out == 64) return f.template operator()<64, 64>();
    if (p.in == 64 && p.out == 128) return f.template operator()<64, 128>();
    return KernelPtr{};
}

/// Whether with_line_channels() calls.
inline bool has_line_channels(const ConvParams& p) { return (p.in == 32 || p.in == 64) && (p.out == p.in || p.out == 2 * p.in); }

/// Whether this is one column with three taps that reach into it.
bool takes_lines(const Context& c, const ConvArgs<bf16>& a);
/// Null where shared memory is too small.
KernelResult make_line_forward(Context& c, const ConvArgs<bf16>& a);
/// Writes all of `sums`, which has line_slabs() slabs, and dx unless it is absent.
KernelResult make_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums);
int line_slabs(const ConvParams& p, int rows);

/// The same for the first layer of such a network: one channel in, no pooling and dropout, dx is not wanted.
bool takes_first_line(const Context& c, const ConvArgs<bf16>& a);
KernelResult make_first_line_forward(Context& c, const ConvArgs<bf16>& a);
KernelResult make_first_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums);
int first_line_slabs(int rows);

/// Packs the weights of the taps that reach into a map: [K][tap][out][in], or with `back` [K][tap][in][out], taps the other way
/// round. `to` is valid as long as the kernel lives.
KernelResult make_line_weights(Context& c, const ConvArgs<bf16>& a, bool back, const bf16*& to);

}  // namespace millrace::ops::cuda
