#pragma once
// A product on the matrix units of compute capability 9.0a whose epilogue is the caller's: out[m][n] = sum over i of
// left[m][i] right[n][i], for every member and group. One launch does a list of such products (problems); its blocks go through
// the tiles of all of them.
//
// A block has a warpgroup that copies and one or two that multiply, 64 rows each. Bulk tensor copies fill a ring of stages; the
// copies of the next tile are under way while the epilogue of this one runs. Where tiles are few, several blocks share the summed
// index of one: each leaves its sums, and the last one adds them in a fixed order.

#include "ops/tile/finish.cuh"
#include "ops/tile/multiply.cuh"
#include "ops/tile/problem.cuh"

namespace millrace::ops::cuda::tile {

/// Where a role stands in the ring of stages.
struct Cursor {
    int stage = 0;
    std::uint32_t phase = 0;
    template <int kStages>
    __device__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

template <class Shape>
struct Ring {
    std::uint32_t base, barriers;
    __device__ std::uint32_t left(int stage) const { return base + stage * Shape::kStageBytes; }
    __device__ std::uint32_t right(int stage) const { return left(stage) + Shape::kLeftBytes; }
    __device__ std::uint32_t filled(int stage) const { return barriers + 16 * stage; }
    __device__ std::uint32_t free(int stage) const { return barriers + 16 * stage + 8; }
};

/// `kTile` rows of an operand and 64 summed elements, or as many columns and 64 summed rows in blocks of 64 columns.
template <bool kSummedRows, int kTile>
__device__ void copy_operand(std::uint32_t to, const CUtensorMap& map, int first, int slice, int g, int k,
                             std::uint32_t barrier) {
    const auto copy = [&](std::uint32_t at, int column, int row) {
        MILLRACE_ASM(
            "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
            "[%6];" ::"r"(at),
            "l"(&map), "r"(column), "r"(row), "r"(g), "r"(k), "r"(barrier)
            : "memory");
    };
    if constexpr (kSummedRows) {
#pragma unroll
        for (int block = 0; block < kTile / 64; ++block) copy(to + block * kBlockBytes, first + 64 * block, kSlice * slice);
    } else {
        copy(to, kSlice * slice, first);
    }
}

template <class Shape, bool kLeftRows, bool kRightRows, class List>
__device__ __forceinline__ void copy_tiles(const List& list, const Ring<Shape>& ring) {
    Cursor at;
    int last = 0;
    for (int number = static_cast<int>(blockIdx.x); number < list.units; number += static_cast<int>(gridDim.x)) {
        const Unit u = find_unit<Shape>(list, number, last);
        const auto& p = list.all[last = u.problem];
        for (int slice = u.begin; slice < u.end; ++slice) {
            const std::uint32_t filled = ring.filled(at.stage);
            hopper::barrier_wait(ring.free(at.stage), at.phase ^ 1);
            hopper::barrier_expect(filled, Shape::kStageBytes);
            copy_operand<kLeftRows, Shape::kRows>(ring.left(at.stage), p.left, u.row, slice, u.g * p.left_g, u.k * p.left_k,
                                                  filled);
            copy_operand<kRightRows, Shape::kWide>(ring.right(at.stage), p.right, u.col, slice, u.g * p.right_g, u.k * p.right_k,
                                                   filled);
            at.template advance<Shape::kStages>();
        }
    }
}

template <class T, class Shape, bool kLeftRows, bool kRightRows>
__device__ void multiply_slices(float (&sums)[Shape::kWide / 64][32], int slices, const Ring<Shape>& ring, Cursor& at) {
    const std::uint32_t mine = (threadIdx.x / 128 - 1) * kBlockBytes;
    const bool leads = (threadIdx.x & 31) == 0;
    int last = -1;
    for (int s = 0; s < slices; ++s) {
        hopper::barrier_wait(ring.filled(at.stage), at.phase);
        const std::uint32_t from_left = ring.left(at.stage) + mine, from_right = ring.right(at.stage);
        const std::uint64_t left = kLeftRows ? hopper::summed_rows(from_left, kBlockBytes) : hopper::operand(from_left);
        const std::uint64_t right = kRightRows ? hopper::summed_rows(from_right, kBlockBytes) : hopper::operand(from_right);
        hopper::products_begin();
#pragma unroll
        for (int i = 0; i < kSlice / 16; ++i)
            multiply_step<T, kLeftRows, kRightRows>(sums, left + i * (kLeftRows ? 128 : 2), right + i * (kRightRows ? 128 : 2));
        hopper::products_commit();
        hopper::products_wait<1>();
        if (last >= 0 && leads) hopper::barrier_arrive(ring.free(last));
        last = at.stage;
        at.template advance<Shape::kStages>();
    }
    hopper::products_wait<0>();
    if (last >= 0 && leads) hopper::barrier_arrive(ring.free(last));
#pragma unroll
    for (int g = 0; g < Shape::kWide / 64; ++g) hopper::hold(sums[g]);
}

/// Leaves the sums of this block's share of a tile. True in the last one to come, which then has the sums of all shares, added in
/// their order.
template <class Shape, class Args>
__device__ __forceinline__ bool join_splits(const Problem<Args>& p, const Unit& u, float (&sums)[Shape::kWide / 64][32],
                                            volatile int* before) {
    constexpr int kQuads = Shape::kWide / 8, kThreads = 128 * Shape::kGroups;
    const int thread = static_cast<int>(threadIdx.x) - 128;
    float4* all = reinterpret_cast<float4*>(p.partial) + std::int64_t{u.tile} * p.splits * kQuads * kThreads + thread;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        const float* v = sums[i / 8] + i % 8 * 4;
        __stcg(all + (u.split * kQuads + i) * kThreads, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    await_products<Shape>();
    if (thread == 0) *before = atomicAdd(p.arrived + u.tile, 1);
    await_products<Shape>();
    if (*before != p.splits - 1) return false;
    __threadfence();
    if (thread == 0) p.arrived[u.tile] = 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
        float4 sum = __ldcg(all + i * kThreads);
        for (int s = 1; s < p.splits; ++s) {
            const float4 more = __ldcg(all + (s * kQuads + i) * kThreads);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        float* v = sums[i / 8] + i % 8 * 4;
        v[0] = sum.x, v[1] = sum.y, v[2] = sum.z, v[3] = sum.w;
    }
    return true;
}

/// Epilogue as finish.cuh describes.
template <class T, class Shape, bool kLeftRows, bool kRightRows, class Epilogue, class List>
__global__ __launch_bounds__(Shape::kThreads, Shape::kBlocks) void product_kernel(const __grid_constant__ List list) {
#ifdef MILLRACE_HOPPER
    extern __shared__ std::uint8_t ring_memory[];
    __shared__ int arrived_before;
    Ring<Shape> ring;
    const std::uint32_t memory = hopper::shared_address(ring_memory);
    ring.base = (memory + 1023) / 1024 * 1024;
    ring.barriers = ring.base + Shape::kStages * Shape::kStageBytes;
    auto* panels = reinterpret_cast<float*>(ring_memory + (ring.barriers + 16 * Shape::kStages - memory));
    if (threadIdx.x == 0) {
        for (int s = 0; s < Shape::kStages; ++s) {
            hopper::barrier_init(ring.filled(s), 1);
            hopper::barrier_init(ring.free(s), 4 * Shape::kGroups);
        }
        hopper::barriers_ready();
    }
    if (threadIdx.x == 32) {
        MILLRACE_ASM("prefetch.tensormap [%0];" ::"l"(&list.all[0].left) : "memory");
        MILLRACE_ASM("prefetch.tensormap [%0];" ::"l"(&list.all[0].right) : "memory");
    }
    __syncthreads();
    begin_kernel();
    if (threadIdx.x < 128) {
        if constexpr (Shape::kBlocks == 1) hopper::give_registers<40>();
        if (threadIdx.x == 0) copy_tiles<Shape, kLeftRows, kRightRows>(list, ring);
        return;
    }
    if constexpr (Shape::kBlocks == 1) hopper::take_registers<232>();
    Cursor at;
    int last = 0, turn = 0;
    for (int number = static_cast<int>(blockIdx.x); number < list.units; number += static_cast<int>(gridDim.x)) {
        const Unit u = find_unit<Shape>(list, number, last);
        const auto& p = list.all[last = u.problem];
        Constants<Shape, Epilogue> constants;
        constants.load(p, u);
        float sums[Shape::kWide / 64][32] = {};
        multiply_slices<T, Shape, kLeftRows, kRightRows>(sums, u.end - u.begin, ring, at);
        if (p.splits > 1 && !join_splits<Shape>(p, u, sums, &arrived_before)) continue;
        finish_tile<Shape, Epilogue>(p, u, sums, constants, panels, turn);
        turn ^= 1;
    }
#endif
}

}  // namespace millrace::ops::cuda::tile
