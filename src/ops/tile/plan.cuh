#pragma once
// Which tiles a product takes, from what they move and multiply.

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/tile/problem.cuh"

namespace millrace::ops::cuda::tile {

/// A product's output and summed index, for `groups` and `members` matrices, and how long its epilogue takes, where 1 is to write
/// a sum.
struct Extent {
    int rows, cols, summed, groups, members;
    double effort = 1;
};

using SmallTile = Shape<1, 64, 6, 2>;
using SquareTile = Shape<2, 128, 6, 1>;
using WideTile = Shape<2, 256, 4, 1>;
enum class TileShape : std::uint8_t { small, square, wide };
constexpr TileShape kAllShapes[] = {TileShape::small, TileShape::square, TileShape::wide};

struct Plan {
    TileShape shape = TileShape::small;
    int splits = 1;
    double microseconds = 0;  ///< predicted
};

/// Splits of so many slices, none of them empty.
constexpr int splits_of(int slices, int most) {
    const int each = std::max(1, (slices + most - 1) / std::max(1, most));
    return std::max(1, (slices + each - 1) / each);
}

/// Warps that multiply in all tiles of one member's output.
int warps_of(TileShape shape, const Extent& product);

/// The cheapest of all shapes and splits for a launch of these products; `widest`: shapes up to this one.
Plan plan_products(std::span<const Extent> products, int multiprocessors, TileShape widest = TileShape::wide);
/// The same with the shape given.
Plan plan_shape(std::span<const Extent> products, int multiprocessors, TileShape shape);

}  // namespace millrace::ops::cuda::tile
