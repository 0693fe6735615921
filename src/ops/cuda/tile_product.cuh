#pragma once
// A persistent product of very many rows with a few matrices, whose epilogue is the caller's: out tile = sum over segments of
// (rows of a_s) (packed weights), handed over in registers, so that what follows a product (gates of a recurrent cell, say) costs
// no trip through memory.
//
// A block has a warpgroup that copies and two that multiply, 64 rows each. Left operands are copied 16 bytes at a time, a
// summed index that is no multiple of a stage filled up with zeros. Right operands come in whole tiles, packed beforehand in the
// order in which shared memory wants them. (Sharing them between the two blocks of a cluster halves their traffic and took 1.7
// times as long on an H200: the blocks then wait for each other in every stage.)

#include "ops/cuda/context.h"
#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda {

constexpr int kTileRows = 128;  ///< of a block
constexpr int kTileDepth = 64;  ///< summed columns of a stage
constexpr int kTileGroup = 64;  ///< output columns of one group
constexpr int kTileThreads = 384;
constexpr int kMostSegments = 4;

/// The output column, of the 64 of a group, that row `m` of a packed tile belongs to: a thread's sums of one row are then two
/// runs of eight columns (column_run).
__host__ __device__ constexpr int packed_column(int m) { return m / 32 * 32 + m % 8 / 2 * 8 + m / 8 % 4 * 2 + m % 2; }
/// First column of run `half` of a thread, inside its group.
__device__ inline int column_run(int half) { return half * 32 + static_cast<int>(threadIdx.x & 3) * 8; }

/// Sums of a thread's row `half` and the eight columns of column_run(run).
__device__ inline void run_of(const float (&sums)[32], int half, int run, float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = sums[4 * (4 * run + i / 2) + 2 * half + i % 2];
}

/// Of one packed tile: element (row, column) of `groups` * 64 rows.
__host__ __device__ constexpr std::int64_t packed_offset(int row, int column) {
    return std::int64_t{row} * kTileDepth + ((column / 8 ^ (row & 7)) * 8 + column % 8);
}

struct Segment {
    const bf16* a = nullptr;
    std::int64_t stride = 0;
    int columns = 0;  ///< a multiple of 8
    int first = 0;    ///< depth block of the packed weights where it begins
};

struct TileArgs {
    Segment segments[kMostSegments];
    int count = 0;
    const bf16* packed = nullptr;  ///< tile (block, t) at (block * tiles + t) * groups * 4,096
    int rows = 0, tiles = 0;       ///< of the output: rows, and tiles across
};

__host__ __device__ inline int tile_units(const TileArgs& a) { return (a.rows + kTileRows - 1) / kTileRows * a.tiles; }

/// How a block computes: kGroups arrays of 64 packed rows per stage, kSums arrays of sums.
template <int kGroups_, int kSums_, int kStages_>
struct TilePlan {
    static constexpr int kGroups = kGroups_, kSums = kSums_, kStages = kStages_;
    static constexpr int kLeftBytes = kTileRows * kTileDepth * 2, kRightBytes = kGroups * kTileGroup * kTileDepth * 2;
    static constexpr int kStageBytes = kLeftBytes + kRightBytes;
    static constexpr std::size_t kShared = std::size_t{1024} + kStages * kStageBytes + 16 * kStages;
};

namespace rows_product {

template <class Plan>
struct Stages {
    std::uint32_t base, full, empty;
    __device__ std::uint32_t left(int stage) const { return base + stage * Plan::kStageBytes; }
    __device__ std::uint32_t right(int stage) const { return left(stage) + Plan::kLeftBytes; }
    __device__ std::uint32_t filled(int stage) const { return full + 8 * stage; }
    __device__ std::uint32_t free(int stage) const { return empty + 8 * stage; }
};

/// One unit of work: a column tile and the first of its rows.
struct Unit {
    int tile, row;
};
__device__ inline Unit unit(const TileArgs& a, int number) { return {number % a.tiles, number / a.tiles * kTileRows}; }

template <class Work>
__device__ void copy_units(const TileArgs& a, const typename Work::Args& work, const Stages<typename Work::Plan>& stages,
                           int units) {
    using Plan = typename Work::Plan;
    const int piece = static_cast<int>(threadIdx.x & 7), row0 = static_cast<int>(threadIdx.x >> 3);
    const std::uint32_t place = static_cast<std::uint32_t>(row0 * 128 + ((piece ^ (row0 & 7)) << 4));
    tile::Cursor ring;
    for (int number = static_cast<int>(blockIdx.x); number < units; number += static_cast<int>(gridDim.x)) {
        const Unit u = unit(a, number);
        int row[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int entry = u.row + row0 + 16 * i;
            row[i] = entry >= a.rows ? -1 : entry;
        }
        if (const int entry = u.row + static_cast<int>(threadIdx.x); entry < a.rows) Work::look_ahead(work, entry, u.tile);
        for (int s = 0; s < a.count; ++s) {
            const Segment segment = a.segments[s];
            const int blocks = (segment.columns + kTileDepth - 1) / kTileDepth;
            for (int block = 0; block < blocks; ++block) {
                hopper::barrier_wait(stages.free(ring.stage), ring.phase ^ 1);
                const int column = block * kTileDepth + piece * 8;
                const bool inside = column < segment.columns;
                const std::uint32_t to = stages.left(ring.stage) + place;
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const bool real = inside && row[i] >= 0;
                    hopper::copy16(to + i * 16 * 128, real ? segment.a + row[i] * segment.stride + column : segment.a,
                                   real ? 16 : 0);
                }
                hopper::copies_arrive(stages.filled(ring.stage));
                if (threadIdx.x == 0) {
                    const auto* from = reinterpret_cast<const std::uint8_t*>(a.packed) +
                                       (std::int64_t{segment.first + block} * a.tiles + u.tile) * Plan::kRightBytes;
                    hopper::barrier_expect(stages.filled(ring.stage), Plan::kRightBytes);
                    hopper::bulk_copy(stages.right(ring.stage), from, Plan::kRightBytes, stages.filled(ring.stage));
                }
                ring.advance<Plan::kStages>();
            }
        }
    }
}

template <class Plan>
__device__ void release(const Stages<Plan>& stages, int stage) {
    if ((threadIdx.x & 31) == 0) hopper::barrier_arrive(stages.free(stage));
}

/// `kSteps` times 16 summed columns of one stage.
template <class Work, int kSteps>
__device__ void multiply_stage(float (&sums)[Work::Plan::kSums][32], std::uint64_t left, std::uint64_t right) {
    hopper::products_begin();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Work::multiply(sums, left + 2 * k, right + 2 * k);
    hopper::products_commit();
}

template <class Work>
__device__ void multiply_segment(const Segment& segment, const Stages<typename Work::Plan>& stages,
                                 float (&sums)[Work::Plan::kSums][32], tile::Cursor& ring, int& last) {
    using Plan = typename Work::Plan;
    const std::uint32_t half = (threadIdx.x / 128 - 1) * (kTileRows / 2 * kTileDepth * 2);
    for (int column = 0; column < segment.columns; column += kTileDepth) {
        hopper::barrier_wait(stages.filled(ring.stage), ring.phase);
        hopper::copies_visible();
        const std::uint64_t left = hopper::operand(stages.left(ring.stage) + half),
                            right = hopper::operand(stages.right(ring.stage));
        if (segment.columns - column > 16)
            multiply_stage<Work, 4>(sums, left, right);
        else
            multiply_stage<Work, 1>(sums, left, right);
        hopper::products_wait<1>();
        if (last >= 0) release(stages, last);
        last = ring.stage;
        ring.advance<Plan::kStages>();
    }
}

/// Until all products are done and every stage is given back.
template <class Plan>
__device__ void finish_products(const Stages<Plan>& stages, float (&sums)[Plan::kSums][32], int& last) {
    hopper::products_wait<0>();
    if (last >= 0) release(stages, last);
    last = -1;
#pragma unroll
    for (int g = 0; g < Plan::kSums; ++g) hopper::hold(sums[g]);
}

template <class Work>
__device__ void multiply_units(const TileArgs& a, const typename Work::Args& work, const Stages<typename Work::Plan>& stages,
                               const float* shared, int units) {
    using Plan = typename Work::Plan;
    const int first = static_cast<int>((threadIdx.x - 128) / 32 * 16 + (threadIdx.x & 31) / 4);
    tile::Cursor ring;
    for (int number = static_cast<int>(blockIdx.x); number < units; number += static_cast<int>(gridDim.x)) {
        const Unit u = unit(a, number);
        float sums[Plan::kSums][32] = {};
        int row[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int entry = u.row + first + 8 * half;
            row[half] = entry >= a.rows ? -1 : entry;
        }
        const typename Work::Early early = Work::begin(work, row, u.tile);
        int last = -1;
#pragma unroll 1
        for (int s = 0; s < a.count; ++s) {
            multiply_segment<Work>(a.segments[s], stages, sums, ring, last);
            if (Work::kAfterFirst && s == 0) {
                finish_products(stages, sums, last);
                Work::after_first(sums);
            }
        }
        finish_products(stages, sums, last);
        Work::finish(work, shared, row, u.tile, early, sums);
    }
}

}  // namespace rows_product

/// Work: Plan, Args and
/// - multiply(sums, left, right): one step of 16 summed columns;
/// - where kAfterFirst, after_first(sums) between the first segment and the others;
/// - shared_floats(args) of shared memory, filled by prepare(args, shared) with all threads;
/// - look_ahead(args, row, tile): called for each row while its products begin, to fetch what finish will read;
/// - begin(args, row, tile), whose result Early reaches finish(args, shared, row, tile, early, sums). Two rows, -1: none; run_of
///   gives the sums of eight columns.
template <class Work>
__global__ __launch_bounds__(kTileThreads, 1) void tile_kernel(const __grid_constant__ TileArgs a,
                                                               const __grid_constant__ typename Work::Args work) {
#ifdef MILLRACE_HOPPER
    using Plan = typename Work::Plan;
    extern __shared__ std::uint8_t tile_memory[];
    rows_product::Stages<Plan> stages;
    stages.base = (hopper::shared_address(tile_memory) + 1023) / 1024 * 1024;
    stages.full = stages.base + Plan::kStages * Plan::kStageBytes;
    stages.empty = stages.full + 8 * Plan::kStages;
    if (threadIdx.x == 0) {
        for (int s = 0; s < Plan::kStages; ++s) {
            hopper::barrier_init(stages.filled(s), 128 + 1);
            hopper::barrier_init(stages.free(s), 8);
        }
        hopper::barriers_ready();
    }
    begin_kernel();
    auto* shared =
        reinterpret_cast<float*>(tile_memory + (stages.empty + 8 * Plan::kStages - hopper::shared_address(tile_memory)));
    Work::prepare(work, shared);
    __syncthreads();
    const int units = tile_units(a);
    if (threadIdx.x < 128) {
        hopper::give_registers<64>();
        rows_product::copy_units<Work>(a, work, stages, units);
    } else {
        hopper::take_registers<216>();
        rows_product::multiply_units<Work>(a, work, stages, shared, units);
    }
#endif
}

/// Blocks of a launch: one per multiprocessor, and no more than there is work.
inline dim3 tile_grid(const Context& c, const TileArgs& a) {
    const int units = tile_units(a);
    return dim3(std::max(1, std::min(units, c.multiprocessors)));
}

template <class Work>
KernelResult make_tile_kernel(const Context& c, const TileArgs& a, const typename Work::Args& work) {
    if (auto raised = raise_shared_memory(c, reinterpret_cast<const void*>(tile_kernel<Work>)); !raised.ok())
        return raised.error();
    const std::size_t bytes = Work::Plan::kShared + sizeof(float) * Work::shared_floats(work);
    return make_launch(c, tile_kernel<Work>, tile_grid(c, a), dim3(kTileThreads), bytes, a, work);
}

}  // namespace millrace::ops::cuda
