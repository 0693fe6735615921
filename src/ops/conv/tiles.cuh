#pragma once
// Tiles of maps in shared memory, for convolutions on tensor cores (bf16). A tile is some whole maps, or some rows of one map. It
// lies there with its surroundings, zeros outside of the map, so that a tap is an offset and windows overlap without copies.

#include "ops/conv/conv_args.cuh"
#include "ops/tile/mma.cuh"

namespace millrace::ops::cuda {

constexpr int kConvThreads = 256, kConvWarps = kConvThreads / 32;
constexpr int kRowPad = 8;  ///< elements behind a position's channels: eight rows of a fragment then lie in different banks

struct ConvTiling {
    LiveTaps taps_h, taps_w;
    int maps = 1, rows = 1, parts = 1;  ///< maps of a tile; rows of each; tiles of a map
    int pitch = 1, lines = 1;           ///< positions of a padded line, lines of a map's part
    int tiles = 0;

    /// Tiles of at most `positions` positions of a batch of `batch` maps; `fits` is false where not even one window line does.
    ConvTiling(const ConvParams& p, int batch, int positions)
        : taps_h(p.height, p.kernel_h), taps_w(p.width, p.kernel_w), rows(p.height) {
        if (p.height * p.width <= positions) {
            maps = positions / (p.height * p.width);
        } else {
            rows = positions / p.width / p.pool_h * p.pool_h;
            parts = rows > 0 ? (p.height + rows - 1) / rows : 0;
        }
        pitch = p.width + taps_w.count - 1;
        lines = rows + taps_h.count - 1;
        tiles = parts > 1 ? batch * parts : (batch + maps - 1) / maps;
    }
    [[nodiscard]] bool fits() const { return rows > 0; }
    [[nodiscard]] constexpr int taps() const { return taps_h.count * taps_w.count; }
    [[nodiscard]] constexpr int region() const { return maps * lines * pitch; }  ///< positions with their surroundings

    /// Where position m of a tile lies in the region, for the first tap.
    [[nodiscard]] __device__ int region_of(const ConvParams& p, int m) const {
        const int inside = m % (rows * p.width);
        return (m / (rows * p.width) * lines + inside / p.width) * pitch + inside % p.width;
    }
    [[nodiscard]] __device__ int tap_offset(int tap) const { return tap / taps_w.count * pitch + tap % taps_w.count; }
};

/// A position of a map; `row` is -1 outside of maps and batch.
struct ConvPosition {
    std::int64_t row = -1;
    int h = 0, w = 0;
};

/// Position m of tile number `tile`.
__device__ inline ConvPosition position_in(const ConvParams& p, const ConvTiling& t, int batch, int tile, int m) {
    ConvPosition at;
    const int inside = m % (t.rows * p.width), map = m / (t.rows * p.width);
    const std::int64_t row = t.parts > 1 ? tile / t.parts : std::int64_t{tile} * t.maps + map;
    at.h = (t.parts > 1 ? tile % t.parts * t.rows : 0) + inside / p.width;
    at.w = inside % p.width;
    at.row = map < t.maps && row < batch && at.h < p.height ? row : -1;
    return at;
}

/// Position `at` of the region of tile number `tile`.
__device__ inline ConvPosition region_position(const ConvParams& p, const ConvTiling& t, int batch, int tile, int at) {
    ConvPosition found;
    const int map = at / (t.lines * t.pitch), line = at / t.pitch % t.lines, column = at % t.pitch;
    const std::int64_t row = t.parts > 1 ? tile / t.parts : std::int64_t{tile} * t.maps + map;
    found.h = (t.parts > 1 ? tile % t.parts * t.rows : 0) + line - t.taps_h.before;
    found.w = column - t.taps_w.before;
    const bool inside = row < batch && found.h >= 0 && found.h < p.height && found.w >= 0 && found.w < p.width;
    found.row = inside ? row : -1;
    return found;
}

/// Eight channels of x from `c` on.
__device__ inline uint4 eight_of_x(const ConvArgs<bf16>& a, int k, const ConvPosition& at, int c) {
    if (at.row < 0) return make_uint4(0, 0, 0, 0);
    return __ldcg(reinterpret_cast<const uint4*>(a.x.row(k, 0, at.row) + (std::int64_t{at.h} * a.p.width + at.w) * a.p.in + c));
}

/// Eight channels of dz from `o` on.
__device__ inline uint4 eight_of_dz(const ConvArgs<bf16>& a, float scale, int k, const ConvPosition& at, int o) {
    bf16 values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = __float2bfloat16_rn(at.row < 0 ? 0 : scale * a.dz(k, at.row, at.h, at.w, o + i));
    return *reinterpret_cast<const uint4*>(values);
}

/// Channels that a tile takes at once.
inline int conv_chunk(int channels) { return channels % 64 == 0 ? 64 : channels % 32 == 0 ? 32 : 16; }

}  // namespace millrace::ops::cuda
