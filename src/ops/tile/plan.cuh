#pragma once
// The products of one launch (product.cuh): how a block's tile is shaped, where in them a unit of work lies, which tiles they
// take, from what these move and multiply, and descriptions of their operands for bulk tensor copies. Where several blocks share
// a tile's summed index, each leaves its sums, and the last one adds them in a fixed order.

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "tensor/view.h"

namespace millrace::ops::cuda::tile {

constexpr int kSlice = 64;             ///< summed elements of a stage
constexpr int kBlockBytes = 64 * 128;  ///< 64 rows of 64 elements
constexpr int kOnesBytes = 1024;       ///< eight rows of them
constexpr int kPanelPitch = 40;        ///< floats of a panel's row
constexpr int kPanelRows = 16, kPanelColumns = 32;

/// A block has kTeams of kGroups warpgroups with kHigh * 64 rows each. A team multiplies a tile of kWide columns; where there are
/// two, one multiplies while the other one finishes its tile. kBlocks blocks share a multiprocessor.
template <int kTeams_, int kGroups_, int kHigh_, int kWide_, int kStages_, int kBlocks_>
struct Shape {
    static constexpr int kTeams = kTeams_, kGroups = kGroups_, kHigh = kHigh_, kWide = kWide_, kStages = kStages_,
                         kBlocks = kBlocks_;
    static constexpr int kRows = 64 * kGroups * kHigh, kBands = kRows / kPanelRows;
    static constexpr int kTeam = 128 * kGroups, kWarps = 4 * kGroups;  ///< threads and warps of a team
    static constexpr int kThreads = 128 + kTeams * kTeam;
    static constexpr int kLeftBytes = kRows * 128, kRightBytes = kWide * 128, kStageBytes = kLeftBytes + kRightBytes;
    static constexpr int kPanelFloats = kWarps * kPanelRows * kPanelPitch;
    /// Floats of a team: panels, two tiles' constants in turns, numbers per column and band that it sums over rows (finish.cuh).
    static constexpr int floats(int constants, int column_values) {
        return kPanelFloats + kWide * (2 * constants + kBands * column_values);
    }
    static constexpr std::size_t bytes(int constants, int column_values, bool row_sums) {
        return 1024 + (row_sums ? kOnesBytes : 0) + std::size_t{kStages} * (kStageBytes + 16) +
               sizeof(float) * kTeams * floats(constants, column_values);
    }
};

/// One product and what its epilogue needs.
template <class Args>
struct Problem {
    CUtensorMap left, right;
    std::int32_t left_g, left_k, right_g, right_k;  ///< 0: the operand is shared along that axis, else 1
    std::int32_t rows, cols, slices;                ///< of the output; summed elements in units of kSlice
    std::int32_t groups;
    std::int32_t row_tiles, col_tiles, splits;  ///< splits: blocks that share the slices of a tile
    std::int32_t stacks;                        ///< of row tiles, one for each block of a cluster
    std::int32_t first;                         ///< its first unit
    float* partial;                             ///< sums of the splits
    std::int32_t* arrived;                      ///< splits of each tile that are done; zeros between launches
    Args args;
};

/// The products of a launch, a parameter of the kernel: what the constant cache holds need not be read again after each store.
template <class Args, int kMost_>
struct Problems {
    static constexpr int kMost = kMost_;
    int count, units;
    int cluster;  ///< blocks with the same columns and slices, which share the right operand
    bool early;   ///< the launch in front does not write the right operand
    Problem<Args> all[kMost];
};

/// What a cluster does next: tiles one below the other, of each block one, or a share of their slices.
struct Unit {
    int problem;
    int row, col;  ///< first of the output; row may lie behind the last one
    int k, g;
    int tile, row_tile, split;
    int begin, end;  ///< slices
};

/// Unit `number`; `last` is the problem of the one before.
template <class Shape, class List>
__device__ __forceinline__ Unit find_unit(const List& list, int number, int last) {
    Unit u;
    u.problem = last;
    if constexpr (List::kMost > 1)
        while (u.problem + 1 < list.count && number >= list.all[u.problem + 1].first) ++u.problem;
    const auto& p = list.all[u.problem];
    const int local = number - p.first, across = local / p.splits, rest = across / p.col_tiles;
    const int matrix = rest / p.stacks, each = (p.slices + p.splits - 1) / p.splits, col_tile = across - rest * p.col_tiles;
    u.split = local - across * p.splits;
    u.row_tile = (rest - matrix * p.stacks) * list.cluster + static_cast<int>(blockIdx.z);
    u.tile = (matrix * p.row_tiles + u.row_tile) * p.col_tiles + col_tile;
    u.col = col_tile * Shape::kWide;
    u.row = u.row_tile * Shape::kRows;
    u.k = matrix / p.groups;
    u.g = matrix - u.k * p.groups;
    u.begin = u.split * each;
    u.end = min(p.slices, u.begin + each);
    return u;
}

/// What the blocks of a tile leave each other.
struct Shares {
    float4* sums;           ///< [count][quads of a thread][threads]
    std::int32_t* arrived;  ///< blocks that are done; zero between launches
    int count;
};

/// Leaves share `own` of a tile: quad(0) to quad(kQuads - 1), four floats each, of threads 0 to kThreads - 1, which meet in
/// `await`. True in the last block to come, whose quads then are the sums of all shares, added in their order.
template <int kQuads, int kThreads, class Quad, class Await>
__device__ __forceinline__ bool join_shares(const Shares& shares, int own, int thread, volatile int* before, Quad quad,
                                            Await await) {
    constexpr int kShare = kQuads * kThreads;
    float4* first = shares.sums + thread;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        const float* v = quad(i);
        __stcg(first + own * kShare + i * kThreads, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    await();
    if (thread == 0) *before = atomicAdd(shares.arrived, 1);
    await();
    if (*before != shares.count - 1) return false;
    __threadfence();
    if (thread == 0) *shares.arrived = 0;
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) quad(i / 4)[i % 4] = 0;
#pragma unroll 1
    for (int s = 0; s < shares.count; ++s, first += kShare)
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
            const float4 more = __ldcg(first + i * kThreads);
            float* v = quad(i);
            v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
        }
    return true;
}

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

/// Whether bulk tensor copies can read the operand: 16 bits an element, rows that begin at multiples of 16 bytes.
bool has_tensor_map(const tensor::Operand& o);

/// A map of [K][G][rows][cols] whose boxes are 64 columns of `box_rows` rows, in the 128-byte swizzle; zeros beyond the borders.
/// Operands that groups or members share have one matrix along that axis. False: the driver has no such maps.
bool make_tensor_map(CUtensorMap& map, const tensor::Operand& o, int box_rows);

}  // namespace millrace::ops::cuda::tile
