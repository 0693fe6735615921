#pragma once
// The products of one launch (product.cuh), how a block's tile is shaped, and where in them a unit of work lies.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

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
        return 1024 + (row_sums ? kOnesBytes : 0) + std::size_t{kStages} * (kStageBytes + 16) + sizeof(float) * kTeams * floats(constants, column_values);
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

}  // namespace millrace::ops::cuda::tile
