#include "ops/tile/plan.cuh"

namespace millrace::ops::cuda::tile {
namespace {

/// What a block costs, in microseconds. Operands come from the second cache, which delivers about 48 bytes a nanosecond to each
/// multiprocessor when all of them ask (H200); products are faster than that.
struct Cost {
    int rows, wide, blocks;  ///< of a tile; blocks of a multiprocessor
    double slice, epilogue;
};
constexpr double kBytesPerMicrosecond = 48e3, kOutputsPerMicrosecond = 8e3;
template <class Shape>
constexpr Cost cost_of() {
    return {Shape::kRows, Shape::kWide, Shape::kBlocks, Shape::kStageBytes * Shape::kBlocks / kBytesPerMicrosecond,
            Shape::kRows * Shape::kWide / kOutputsPerMicrosecond};
}
Cost cost_of(TileShape shape) {
    return shape == TileShape::small    ? cost_of<SmallTile>()
           : shape == TileShape::square ? cost_of<SquareTile>()
                                        : cost_of<WideTile>();
}

double time_of(std::span<const Extent> products, int multiprocessors, const Cost& cost, int splits) {
    constexpr double kLaunch = 3, kHandOver = 6;
    // A share of a tile is written and read once more.
    const double join = splits > 1 ? 8.0 * cost.rows * cost.wide * cost.blocks / kBytesPerMicrosecond : 0;
    std::int64_t units = 0;
    double longest = 0, work = 0;
    for (const Extent& e : products) {
        const int slices = (e.summed + kSlice - 1) / kSlice, own = splits_of(slices, splits), each = (slices + own - 1) / own;
        const std::int64_t tiles =
            std::int64_t{(e.rows + cost.rows - 1) / cost.rows} * ((e.cols + cost.wide - 1) / cost.wide) * e.groups * e.members;
        const double unit = each * cost.slice + e.effort * cost.epilogue + join;
        units += tiles * own;
        longest = std::max(longest, unit);
        work += static_cast<double>(tiles * own) * unit;
    }
    const std::int64_t seats = std::int64_t{multiprocessors} * cost.blocks, rounds = (units + seats - 1) / seats;
    // A single round that leaves multiprocessors idle has more of the cache to itself; few rounds of unlike units end with the
    // longest ones.
    const double fixed = kLaunch + (splits > 1 ? kHandOver : 0);
    if (rounds == 1) return fixed + longest * std::max(0.5, static_cast<double>(units) / static_cast<double>(seats));
    const double mean = work / static_cast<double>(seats),
                 whole = static_cast<double>(rounds) * work / static_cast<double>(units);
    return fixed + std::max(whole, mean + 0.5 * longest);
}

}  // namespace

int warps_of(TileShape shape, const Extent& e) {
    const Cost cost = cost_of(shape);
    return (e.rows + cost.rows - 1) / cost.rows * ((e.cols + cost.wide - 1) / cost.wide) * e.groups * (cost.rows / 16);
}

Plan plan_shape(std::span<const Extent> products, int multiprocessors, TileShape shape) {
    Plan best;
    for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16}) {
        const double time = time_of(products, multiprocessors, cost_of(shape), splits);
        if (splits == 1 || time < best.microseconds) best = {shape, splits, time};
    }
    return best;
}

Plan plan_products(std::span<const Extent> products, int multiprocessors, TileShape widest) {
    Plan best;
    for (const TileShape shape : kAllShapes) {
        if (shape > widest) break;
        const Plan plan = plan_shape(products, multiprocessors, shape);
        if (shape == TileShape::small || plan.microseconds < best.microseconds) best = plan;
    }
    return best;
}

}  // namespace millrace::ops::cuda::tile
