#include "ops/tile/plan.cuh"

#include <cstdlib>

namespace millrace::ops::cuda::tile {
namespace {

// Figures of an H200, microseconds (docs/performance/forms.md): to be fitted again where the kernel changes.
constexpr double kLaunch = 2.6, kMeet = 0.7;       ///< a launch from its start to the first copy's end; of blocks of a cluster
constexpr double kLatency = 1.5;                   ///< of a copy, of which a block has as many under way as stages
constexpr double kHandOver = 1.5, kShare = 0.3;    ///< of a tile that blocks share, and of each share
constexpr double kBytesPerMicrosecond = 48e3;      ///< from the second cache to each multiprocessor when all of them ask
constexpr double kProductsPerMicrosecond = 3.3e6;  ///< multiplications and additions of a multiprocessor
constexpr double kOutputsPerMicrosecond = 13e3;    ///< epilogues of effort 1, by eight warps of a multiprocessor
constexpr double kOutputsOfTeam = 0.6;             ///< what the four of one team reach of it, alone

/// What the blocks of a multiprocessor do at once.
struct Cost {
    int rows, wide, stages, blocks, teams, warps;
    double left_bytes, right_bytes;
};
template <class Shape>
constexpr Cost cost_of() {
    return {Shape::kRows,  Shape::kWide,  Shape::kStages,    Shape::kBlocks,
            Shape::kTeams, Shape::kWarps, Shape::kLeftBytes, Shape::kRightBytes};
}
Cost cost_of(TileShape shape) {
    switch (shape) {
        case TileShape::small: return cost_of<SmallTile>();
        case TileShape::square: return cost_of<SquareTile>();
        case TileShape::turns: return cost_of<TurnsTile>();
        case TileShape::wide: break;
    }
    return cost_of<WideTile>();
}
constexpr int parts(int whole, int part) { return (whole + part - 1) / part; }

/// A unit of work: its time alone, and behind another one, whose epilogue runs while its operands come.
struct UnitTime {
    double first, next;
};
UnitTime unit_time(const Extent& e, const Cost& cost, int splits, int cluster, double blocks, double share) {
    const int slices = parts(e.summed, kSlice), each = parts(slices, splits_of(slices, splits));
    const double outputs = blocks * cost.rows * cost.wide;
    const double bytes = blocks * (cost.left_bytes + cost.right_bytes / cluster);
    const double load = each * std::max(bytes / kBytesPerMicrosecond * share, kLatency / cost.stages);
    const double multiply = each * outputs * kSlice / kProductsPerMicrosecond;
    // A share of a tile is written and read once more.
    const double join = splits > 1 ? 8.0 * outputs / kBytesPerMicrosecond : 0;
    const double finish = e.effort * outputs / kOutputsPerMicrosecond + join;
    if (cost.teams == 1) return {std::max(load, multiply) + finish, std::max(load, multiply + finish)};
    const double own = finish / kOutputsOfTeam;
    return {std::max(load, multiply) + own, std::max({load, multiply, (multiply + own) / cost.teams})};
}

double time_of(std::span<const Extent> products, int multiprocessors, const Cost& cost, int splits, int cluster) {
    std::int64_t units = 0;
    const auto units_of = [&](const Extent& e) {
        const std::int64_t stacks = parts(parts(e.rows, cost.rows), cluster), across = parts(e.cols, cost.wide);
        return stacks * cluster * across * e.groups * e.members * splits_of(parts(e.summed, kSlice), splits);
    };
    for (const Extent& e : products) units += units_of(e);
    const std::int64_t seats = std::int64_t{multiprocessors} * cost.blocks, rounds = (units + seats - 1) / seats;
    // A single round that leaves multiprocessors idle has more of the cache to itself.
    const double blocks = std::min<double>(cost.blocks, static_cast<double>(parts(static_cast<int>(units), multiprocessors)));
    const double share = std::clamp(static_cast<double>(units) / multiprocessors, 0.5, 1.0);
    double longest = 0, first = 0, next = 0;
    for (const Extent& e : products) {
        const UnitTime unit = unit_time(e, cost, splits, cluster, blocks, share);
        const double part = static_cast<double>(units_of(e)) / static_cast<double>(units);
        longest = std::max(longest, unit.first);
        first += part * unit.first;
        next += part * unit.next;
    }
    const double fixed = kLaunch + (cluster > 1 ? kMeet : 0) + (splits > 1 ? kHandOver + kShare * splits : 0);
    if (rounds == 1) return fixed + longest;
    // Few rounds of unlike units end with the longest ones.
    const double whole = first + static_cast<double>(rounds - 1) * next,
                 even = static_cast<double>(units) / static_cast<double>(seats) * next + 0.5 * longest;
    return fixed + std::max(whole, even);
}

}  // namespace

int rows_of(TileShape shape) { return cost_of(shape).rows; }

int warps_of(TileShape shape, const Extent& e) {
    const Cost cost = cost_of(shape);
    return parts(e.rows, cost.rows) * parts(e.cols, cost.wide) * e.groups * cost.warps;
}

int clusters_at_once(const void* kernel, int threads, std::size_t bytes, unsigned cluster) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {1, 1, cluster};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1, 1, cluster);
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = 0;
    if (cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) cudaGetLastError();
    return std::max(1, count);
}

Limits limits_of(std::span<const std::string> forms, TileShape widest) {
    constexpr const char* kNames[] = {"small", "square", "turns", "wide"};
    Limits limits{widest};
    for (const std::string& form : forms) {
        if (!form.starts_with("tiles=")) continue;
        const std::string what = form.substr(6);
        for (int shape = 0; shape <= static_cast<int>(widest); ++shape)
            if (what == kNames[shape]) limits.shape = shape;
        const auto number = [&](const char* name, int& to) {
            if (what.starts_with(name)) to = std::atoi(what.c_str() + std::string(name).size());
        };
        number("cluster", limits.cluster);
        number("splits", limits.splits);
        number("seats", limits.seats);
    }
    return limits;
}

Plan plan_products(std::span<const Extent> products, int multiprocessors, const Limits& limits) {
    Plan best;
    for (const TileShape shape : kAllShapes)
        for (const int cluster : {1, 2})
            for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16}) {
                const bool allowed = shape <= limits.widest && (limits.shape < 0 || limits.shape == static_cast<int>(shape)) &&
                                     (limits.cluster == 0 || limits.cluster == cluster) &&
                                     (limits.splits == 0 || limits.splits == splits);
                if (!allowed) continue;
                const double time = time_of(products, multiprocessors, cost_of(shape), splits, cluster);
                if (best.microseconds == 0 || time < best.microseconds) best = {shape, splits, cluster, time, limits.seats};
            }
    const bool asked = limits.shape >= 0 || limits.cluster > 0 || limits.splits > 0;
    // A request that no plan meets is none.
    return best.microseconds == 0 && asked ? plan_products(products, multiprocessors, Limits{limits.widest}) : best;
}

bool has_tensor_map(const tensor::Operand& o) {
    const auto whole = [](std::int64_t stride) { return stride % 8 == 0; };
    return tensor::size_of(o.dtype) == 2 && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && o.rows > 0 && o.cols > 0 &&
           whole(o.stride_row) && o.stride_row > 0 && (o.g <= 1 || whole(o.stride_g)) && (o.k <= 1 || whole(o.stride_k));
}

bool make_tensor_map(CUtensorMap& map, const tensor::Operand& o, int box_rows) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    const auto matrices = [](std::int32_t count, std::int64_t stride) { return stride == 0 ? std::int64_t{1} : count; };
    const std::int64_t groups = matrices(o.g, o.stride_g), members = matrices(o.k, o.stride_k), row = o.stride_row * 2;
    // A stride along an axis of one matrix is never used, but has to be a valid one.
    const std::int64_t group = groups > 1 ? o.stride_g * 2 : row * o.rows, member = members > 1 ? o.stride_k * 2 : group * groups;
    const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
    const cuuint64_t sizes[] = {size(o.cols), size(o.rows), size(groups), size(members)},
                     strides[] = {size(row), size(group), size(member)};
    const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[] = {1, 1, 1, 1};
    const auto type = o.dtype == tensor::DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
               &map, type, 4, o.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace millrace::ops::cuda::tile
