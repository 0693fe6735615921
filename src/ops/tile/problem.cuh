#pragma once
// The products of one launch (product.cuh), how a block's tile is shaped, and where in them a unit of work lies.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace millrace::ops::cuda::tile {

constexpr int kSlice = 64;             ///< summed elements of a stage
constexpr int kBlockBytes = 64 * 128;  ///< 64 rows of 64 elements
constexpr int kOnesBytes = 1024;       ///< eight rows of them
constexpr int kPanelPitch = 36;        ///< floats of a panel's row, free of bank conflicts when read in runs of eight
constexpr int kPanelRows = 16, kPanelColumns = 32;

/// A block multiplies kGroups * 64 rows by kWide columns with kStages stages; kBlocks of them share a multiprocessor.
template <int kGroups_, int kWide_, int kStages_, int kBlocks_>
struct Shape {
    static constexpr int kGroups = kGroups_, kWide = kWide_, kStages = kStages_, kBlocks = kBlocks_;
    static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1), kWarps = 4 * kGroups;
    static constexpr int kLeftBytes = kRows * 128, kRightBytes = kWide * 128, kStageBytes = kLeftBytes + kRightBytes;
    static constexpr int kPanelFloats = kWarps * kPanelRows * kPanelPitch;
    /// With numbers per column that an epilogue shares, and those per column and warp that it sums over rows (finish.cuh).
    static constexpr std::size_t bytes(int constants, int column_values, bool row_sums) {
        return 1024 + (row_sums ? kOnesBytes : 0) + std::size_t{kStages} * (kStageBytes + 16) +
               sizeof(float) * (kPanelFloats + kWide * (2 * constants + kWarps * column_values));
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
    Problem<Args> all[kMost];
};

/// What a block does next: a tile, or a share of its slices.
struct Unit {
    int problem;
    int row, col;  ///< first of the output
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
    const int local = number - p.first;
    u.split = local % p.splits;
    u.tile = local / p.splits;
    u.col = u.tile % p.col_tiles * Shape::kWide;
    const int rest = u.tile / p.col_tiles, matrix = rest / p.row_tiles, each = (p.slices + p.splits - 1) / p.splits;
    u.row_tile = rest % p.row_tiles;
    u.row = u.row_tile * Shape::kRows;
    u.k = matrix / p.groups;
    u.g = matrix % p.groups;
    u.begin = u.split * each;
    u.end = min(p.slices, u.begin + each);
    return u;
}

}  // namespace millrace::ops::cuda::tile
