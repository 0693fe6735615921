#pragma once
// Which tiles a product takes, from what they move and multiply.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "ops/tile/problem.cuh"

namespace millrace::ops::cuda::tile {

/// A product's output and summed index, for `groups` and `members` matrices, and how long its epilogue takes, where 1 is to write
/// a sum in 16 bits.
struct Extent {
    int rows, cols, summed, groups, members;
    double effort = 1;
};

using SmallTile = Shape<1, 1, 1, 64, 6, 2>;
using SquareTile = Shape<1, 2, 1, 128, 6, 1>;
using TurnsTile = Shape<2, 1, 2, 128, 5, 1>;  ///< square ones, two of a block in turns
using WideTile = Shape<1, 2, 1, 256, 4, 1>;
enum class TileShape : std::uint8_t { small, square, turns, wide };
constexpr TileShape kAllShapes[] = {TileShape::small, TileShape::square, TileShape::turns, TileShape::wide};

struct Plan {
    TileShape shape = TileShape::small;
    int splits = 1, cluster = 1;
    double microseconds = 0;  ///< predicted
    int seats = 0;            ///< blocks or clusters at most; 0: as many as run at once
};

/// What a plan may be. BackendOptions::forms says it for tests and timing: "tiles=turns", "tiles=cluster2", "tiles=splits3",
/// "tiles=seats5". 0: free.
struct Limits {
    TileShape widest = TileShape::wide;
    int shape = -1, cluster = 0, splits = 0, seats = 0;
};
Limits limits_of(std::span<const std::string> forms, TileShape widest = TileShape::wide);

/// Splits of so many slices, none of them empty.
constexpr int splits_of(int slices, int most) {
    const int each = std::max(1, (slices + most - 1) / std::max(1, most));
    return std::max(1, (slices + each - 1) / each);
}

/// Rows of a tile; warps with sums of their own in all tiles of one member's output.
int rows_of(TileShape shape);
int warps_of(TileShape shape, const Extent& product);

/// Clusters of so many blocks that the device runs at once, at least 1.
int clusters_at_once(const void* kernel, int threads, std::size_t bytes, unsigned cluster);

/// The cheapest of all shapes, splits and clusters for a launch of these products.
Plan plan_products(std::span<const Extent> products, int multiprocessors, const Limits& limits);

}  // namespace millrace::ops::cuda::tile
