#pragma once
// The stages that a block's copies fill and its teams read, in turns. Blocks of a cluster have the same columns and slices: each
// copies its part of the right operand to all of them.

#include "ops/tile/hopper.cuh"
#include "ops/tile/plan.cuh"

namespace millrace::ops::cuda::tile {

/// Until all threads of the cluster have come.
__device__ inline void meet_cluster() {
    MILLRACE_ASM("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

template <class Shape>
struct Ring {
    std::uint32_t base, barriers;
    __device__ std::uint32_t left(int stage) const { return base + stage * Shape::kStageBytes; }
    __device__ std::uint32_t right(int stage) const { return left(stage) + Shape::kLeftBytes; }
    __device__ std::uint32_t ones() const { return left(Shape::kStages); }  ///< of an epilogue that wants sums of rows
    __device__ std::uint32_t filled(int stage) const { return barriers + 16 * stage; }
    __device__ std::uint32_t free(int stage) const { return barriers + 16 * stage + 8; }
    /// By one thread, before all of the cluster meet.
    __device__ void init(int cluster) const {
        for (int s = 0; s < Shape::kStages; ++s) {
            hopper::barrier_init(filled(s), 1);
            hopper::barrier_init(free(s), Shape::kWarps * cluster);
        }
        hopper::barriers_ready();
    }
    /// A warp has read a stage: the blocks that copy to it may know.
    __device__ void release(int stage, int cluster) const {
        const int lane = static_cast<int>(threadIdx.x & 31);
        if (lane < cluster)
            MILLRACE_ASM(
                "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(free(stage)),
                "r"(lane)
                : "memory");
    }
};

/// A box of a tensor map to the shared memory of `cluster` blocks, where it begins at the same place in each.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, int column, int row, int g, int k,
                                std::uint32_t barrier, int cluster) {
    if (cluster == 1)
        MILLRACE_ASM(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
            "[%6];" ::"r"(to),
            "l"(&map), "r"(column), "r"(row), "r"(g), "r"(k), "r"(barrier)
            : "memory");
    else
        MILLRACE_ASM(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
            "l"(&map), "r"(column), "r"(row), "r"(g), "r"(k), "r"(barrier), "h"(static_cast<std::uint16_t>((1 << cluster) - 1))
            : "memory");
}

/// Part blockIdx.z of `cluster` parts of `kTile` rows of an operand and 64 summed elements, or of as many columns and 64 summed
/// rows in blocks of 64 columns, to all blocks of the cluster.
template <bool kSummedRows, int kTile>
__device__ inline void copy_operand(std::uint32_t to, const CUtensorMap& map, int first, int slice, int g, int k,
                                    std::uint32_t barrier, int cluster) {
    const int part = cluster > 1 ? static_cast<int>(blockIdx.z) : 0;
    if constexpr (kSummedRows) {
        const int blocks = kTile / 64 >> cluster / 2;  // of 1, 2 or 4
        for (int block = part * blocks; block < (part + 1) * blocks; ++block)
            copy_box(to + block * kBlockBytes, map, first + 64 * block, kSlice * slice, g, k, barrier, cluster);
    } else {
        const int rows = part * (kTile >> cluster / 2);
        copy_box(to + rows * 128, map, kSlice * slice, first + rows, g, k, barrier, cluster);
    }
}

/// By one thread. The first stages get their right operand before the launch in front is done, if that one does not write it.
template <class Shape, bool kLeftRows, bool kRightRows, class List>
__device__ __forceinline__ void copy_tiles(const List& list, const Ring<Shape>& ring) {
    const auto copy_right = [&](const Unit& u, int slice, int stage) {
        const auto& p = list.all[u.problem];
        hopper::barrier_expect(ring.filled(stage), Shape::kStageBytes);
        copy_operand<kRightRows, Shape::kWide>(ring.right(stage), p.right, u.col, slice, u.g * p.right_g, u.k * p.right_k,
                                               ring.filled(stage), list.cluster);
    };
    int ahead = 0, last = 0;
    if (list.early) {
        const Unit u = find_unit<Shape>(list, static_cast<int>(blockIdx.x), 0);
        ahead = min(Shape::kStages, u.end - u.begin);
        for (int s = 0; s < ahead; ++s) copy_right(u, u.begin + s, s);
    }
    begin_kernel();
    Cursor at;
    for (int number = static_cast<int>(blockIdx.x); number < list.units; number += static_cast<int>(gridDim.x)) {
        const Unit u = find_unit<Shape>(list, number, last);
        const auto& p = list.all[last = u.problem];
        for (int slice = u.begin; slice < u.end; ++slice, --ahead) {
            if (ahead <= 0) {
                hopper::barrier_wait(ring.free(at.stage), at.phase ^ 1);
                copy_right(u, slice, at.stage);
            }
            copy_operand<kLeftRows, Shape::kRows>(ring.left(at.stage), p.left, u.row, slice, u.g * p.left_g, u.k * p.left_k,
                                                  ring.filled(at.stage), 1);
            at.template advance<Shape::kStages>();
        }
    }
    // A block whose barriers others arrive at must not end before them.
    for (int s = 0; s < Shape::kStages && list.cluster > 1; ++s) {
        hopper::barrier_wait(ring.free(at.stage), at.phase ^ 1);
        at.template advance<Shape::kStages>();
    }
}

}  // namespace millrace::ops::cuda::tile
