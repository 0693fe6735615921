#pragma once
// Which form of the fused dense kernels a layer takes: strips of few columns, whose warps share the summed index (one model), or
// wide tiles (many members).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/activation.h"

namespace millrace::ops::cuda::wide {

constexpr int kDepth = 64;  ///< summed elements of a slice
constexpr int kStages = 3;  ///< slices of the ring
constexpr int kMiddle = 4;  ///< where two blocks share a multiprocessor
constexpr int kDeep = 6;    ///< where a block has one to itself, to hide the latency alone
constexpr int kRows = 128;  ///< of a tile, unless column sums run over more rows
constexpr int kMostThreads = 256;

/// A layer's product: matrices of rows x columns, `count` of them over groups and members.
struct Extent {
    int rows, columns;
    std::int64_t count;
    bool whole;         ///< column sums run over all rows
    bool whole_pieces;  ///< rows of both operands begin at multiples of 16 bytes and are whole multiples of them
};

struct Tiling {
    int columns = 0;  ///< of a tile; 0: no wide tile
    int row_tile = 0, row_tiles = 1;
    bool whole_pieces = true;
    [[nodiscard]] int strips() const { return (row_tile + 63) / 64 * 2; }  ///< of 32 rows, in pairs
    [[nodiscard]] int threads() const { return 32 * strips() * (columns >= 64 ? 2 : 1); }
    [[nodiscard]] std::size_t ring_bytes(int summed, int stages) const {
        const int slices = std::clamp((summed + kDepth - 1) / kDepth, 1, stages);
        return std::size_t{2} * kDepth * static_cast<std::size_t>(slices * (32 * strips() + columns));
    }
};

/// Slices of the ring of each of so many blocks.
inline int stages_for(std::int64_t blocks, int multiprocessors) {
    return blocks <= multiprocessors ? kDeep : blocks <= 2 * multiprocessors ? kMiddle : kStages;
}

/// Whether wide tiles know an activation; longer formulas would be unrolled over all values of a thread.
inline bool has_activation(Activation a) { return a == Activation::none || a == Activation::relu; }

/// What the busiest multiprocessor reads: its blocks times the rows of both operands of a block. Blocks with fewer warps than it
/// has schedulers run side by side in the time of one.
inline std::int64_t cost(std::int64_t blocks, int rows, int columns, int warps, int multiprocessors) {
    constexpr int kSchedulers = 4;
    const std::int64_t turns = (blocks + multiprocessors - 1) / multiprocessors;
    return (rows + columns) * std::max<std::int64_t>(turns, (kSchedulers + warps - 1) / warps);
}

/// Of the strips that `shape` describes (strip.cuh).
template <class Shape>
std::int64_t strip_cost(const Shape& shape, const Extent& e, int multiprocessors) {
    const int columns = 8 * shape.tiles;
    const std::int64_t blocks = e.count * shape.row_tiles * ((e.columns + columns - 1) / columns);
    return cost(blocks, shape.row_tile, columns, static_cast<int>(shape.threads() / 32), multiprocessors);
}

/// The cheapest wide tile, or none where strips of cost `narrow` are no dearer. `least`: columns of the narrowest.
inline Tiling tiling_for(const Extent& e, std::int64_t narrow, int least, int multiprocessors) {
    Tiling best;
    for (int columns = e.whole_pieces ? 64 : 32; columns >= (e.whole_pieces ? least : 32); columns /= 2) {
        Tiling t;
        t.columns = columns;
        t.whole_pieces = e.whole_pieces;
        t.row_tiles = e.whole ? 1 : (e.rows + kRows - 1) / kRows;
        t.row_tile = (e.rows + t.row_tiles - 1) / t.row_tiles;
        if (t.threads() > kMostThreads) continue;
        const std::int64_t blocks = e.count * t.row_tiles * ((e.columns + columns - 1) / columns);
        const int used = std::min(columns, e.columns), warps = (t.row_tile + 31) / 32 * ((used + 31) / 32);
        const std::int64_t price = cost(blocks, t.row_tile, used, warps, multiprocessors);
        if (price < narrow || (best.columns > 0 && price == narrow)) {  // a narrower tile of the same cost wastes less
            narrow = price;
            best = t;
        }
    }
    return best;
}

/// How the fused kernels cover a layer.
template <class Shape>
struct Covering {
    Shape strips;
    Tiling tiling;  ///< columns 0: strips
    std::int64_t cost;
};
/// Strips, or wide tiles where a layer `allows` these, they cost less, and a block has room for one: fits(tiling).
template <class Shape, class Fits>
Covering<Shape> cover(const Shape& strips, const Extent& e, bool allows, int least, int multiprocessors, Fits fits) {
    Covering<Shape> by{strips, {}, strip_cost(strips, e, multiprocessors)};
    const Tiling tiling = allows ? tiling_for(e, by.cost, least, multiprocessors) : Tiling{};
    if (tiling.columns == 0 || !fits(tiling)) return by;
    by.tiling = tiling;
    const std::int64_t blocks = e.count * tiling.row_tiles * ((e.columns + tiling.columns - 1) / tiling.columns);
    by.cost = cost(blocks, tiling.row_tile, tiling.columns, tiling.threads() / 32, multiprocessors);
    return by;
}

}  // namespace millrace::ops::cuda::wide
