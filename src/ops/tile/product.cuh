#pragma once
// A product on the matrix units of compute capability 9.0a whose epilogue is the caller's: out[m][n] = sum over i of
// left[m][i] right[n][i], for every member and group. One launch does a list of such products (problems); its blocks go through
// the tiles of all of them.
//
// A block has a warpgroup that copies and one or two that multiply. Bulk tensor copies fill a ring of stages; the copies of the
// next tile are under way while the epilogue of this one runs. Two warpgroups that multiply share a tile, or take turns with one
// each: then one multiplies while the other one is in its epilogue. Where tiles are few, several blocks share the summed index of
// one: each leaves its sums, and the last one adds them in a fixed order.

#include <span>
#include <vector>

#include "ops/tile/finish.cuh"
#include "ops/tile/hopper.cuh"
#include "ops/tile/plan.cuh"
#include "ops/tile/ring.cuh"

namespace millrace::ops::cuda::tile {

/// Eight rows of 64 ones, for the matrix units.
template <class T, class Shape>
__device__ void put_ones(std::uint8_t* to) {
    constexpr std::uint32_t kTwo = std::is_same_v<T, f16> ? 0x3c003c00u : 0x3f803f80u;
    for (int i = static_cast<int>(threadIdx.x); i < kOnesBytes / 4; i += Shape::kThreads)
        reinterpret_cast<std::uint32_t*>(to)[i] = kTwo;
    hopper::copies_visible();
}

/// The last products are still under way, await_sums is for them. With kRowSums the sums of the left operand's rows, too: its
/// product with ones.
template <class T, class Shape, bool kLeftRows, bool kRightRows, bool kRowSums>
__device__ __forceinline__ void multiply_slices(Sums<Shape>& sums, RowSums<Shape>& row_sums, int slices, const Ring<Shape>& ring,
                                                int cluster, Cursor& at) {
    constexpr int kLeftStep = kLeftRows ? 128 : 2, kRightStep = kRightRows ? 128 : 2;
    const std::uint32_t mine = (threadIdx.x / 128 - 1) % Shape::kGroups * Shape::kHigh * kBlockBytes;
    int last = -1;
    for (int s = 0; s < slices; ++s) {
        hopper::barrier_wait(ring.filled(at.stage), at.phase);
        const std::uint32_t from_left = ring.left(at.stage) + mine, from_right = ring.right(at.stage);
        const std::uint64_t left = kLeftRows ? hopper::summed_rows(from_left, kBlockBytes) : hopper::operand(from_left);
        const std::uint64_t right = kRightRows ? hopper::summed_rows(from_right, kBlockBytes) : hopper::operand(from_right);
        hopper::products_begin();
#pragma unroll
        for (int i = 0; i < kSlice / 16; ++i)
#pragma unroll
            for (int h = 0; h < Shape::kHigh; ++h) {
                const std::uint64_t rows = left + i * kLeftStep + h * (kBlockBytes >> 4);
                multiply_step<T, kLeftRows, kRightRows>(sums[h], rows, right + i * kRightStep, s + i);
                if constexpr (kRowSums)
                    multiply_step<T, kLeftRows, false>(row_sums[h], rows, hopper::operand(ring.ones()), s + i);
            }
        hopper::products_commit();
        hopper::products_wait<1>();
        if (last >= 0) ring.release(last, cluster);
        last = at.stage;
        at.template advance<Shape::kStages>();
    }
}
template <class Shape, bool kRowSums>
__device__ __forceinline__ void await_sums(Sums<Shape>& sums, RowSums<Shape>& row_sums, const Ring<Shape>& ring, int cluster,
                                           const Cursor& at) {
    hopper::products_wait<0>();
    ring.release((at.stage + Shape::kStages - 1) % Shape::kStages, cluster);
#pragma unroll
    for (int h = 0; h < Shape::kHigh; ++h) {
        if constexpr (kRowSums) hopper::hold(row_sums[h]);
#pragma unroll
        for (int g = 0; g < Shape::kWide / 64; ++g) hopper::hold(sums[h][g]);
    }
}

/// As join_shares.
template <class Shape, bool kRowSums, class Args>
__device__ __forceinline__ bool join_splits(const Problem<Args>& p, const Unit& u, Sums<Shape>& sums, RowSums<Shape>& row_sums,
                                            volatile int* before) {
    constexpr int kOfTile = Shape::kHigh * Shape::kWide / 8, kQuads = kOfTile + (kRowSums ? Shape::kHigh : 0);
    const auto quad = [&](int i) { return i < kOfTile ? &sums[0][0][0] + 4 * i : row_sums[i - kOfTile]; };
    auto* first = reinterpret_cast<float4*>(p.partial) + std::int64_t{u.tile} * p.splits * kQuads * Shape::kTeam;
    return join_shares<kQuads, Shape::kTeam>({first, p.arrived + u.tile, p.splits}, u.split, team_thread<Shape>(), before, quad,
                                             [] { await_team<Shape>(); });
}

/// What a team does. Units go to the teams in turn; a team waits for the products of the one before, since barriers of the ring
/// tell only neighbouring rounds apart.
template <class T, class Shape, bool kLeftRows, bool kRightRows, class Epilogue, class List>
__device__ __forceinline__ void multiply_tiles(const List& list, const Ring<Shape>& ring, float* memory, volatile int* before) {
    const int team = static_cast<int>(threadIdx.x - 128) / Shape::kTeam;
    constexpr bool kRowSums = sums_rows<Epilogue>;
    memory += team * Shape::floats(Epilogue::kConstants, Epilogue::kColumnValues);
    Cursor at;
    int last = 0, round = 0, turn = 0;
    for (int number = static_cast<int>(blockIdx.x); number < list.units; number += static_cast<int>(gridDim.x), ++round) {
        const Unit u = find_unit<Shape>(list, number, last);
        const auto& p = list.all[last = u.problem];
        if (Shape::kTeams > 1 && round % Shape::kTeams != team) {
            at.template advance<Shape::kStages>(u.end - u.begin);
            continue;
        }
        const bool there = u.row < p.rows;
        Finish<Shape, Epilogue> finish(p, u);
        if (Shape::kTeams > 1 && round > 0) hopper::await_turn<2 * Shape::kTeam>(kTurnBarrier + team);
        Sums<Shape> sums;
        RowSums<Shape> row_sums;  // to clear them would make the products wait for each other; unless with_rows they are nothing
        bool with_rows = false;
        if constexpr (kRowSums) with_rows = u.col == 0 && Epilogue::wants_rows(p.args);
        if (with_rows)
            multiply_slices<T, Shape, kLeftRows, kRightRows, kRowSums>(sums, row_sums, u.end - u.begin, ring, list.cluster, at);
        else
            multiply_slices<T, Shape, kLeftRows, kRightRows, false>(sums, row_sums, u.end - u.begin, ring, list.cluster, at);
        if (Shape::kTeams > 1 && number + static_cast<int>(gridDim.x) < list.units)
            hopper::give_turn<2 * Shape::kTeam>(kTurnBarrier + (team ^ 1));
        await_sums<Shape, kRowSums>(sums, row_sums, ring, list.cluster, at);
        if (!there || (p.splits > 1 && !join_splits<Shape, kRowSums>(p, u, sums, row_sums, before + team))) continue;
        if constexpr (kRowSums)
            if (with_rows) finish_rows<Shape, Epilogue>(p, u, row_sums);
        finish.end(sums, memory, turn ^= 1);
    }
}

/// Epilogue as finish.cuh describes.
template <class T, class Shape, bool kLeftRows, bool kRightRows, class Epilogue, class List>
__global__ __launch_bounds__(Shape::kThreads, Shape::kBlocks) void product_kernel(const __grid_constant__ List list) {
#ifdef MILLRACE_HOPPER
    extern __shared__ std::uint8_t ring_memory[];
    __shared__ int arrived_before[Shape::kTeams];
    Ring<Shape> ring;
    const std::uint32_t memory = hopper::shared_address(ring_memory);
    ring.base = (memory + 1023) / 1024 * 1024;
    ring.barriers = ring.ones() + (sums_rows<Epilogue> ? kOnesBytes : 0);
    if constexpr (sums_rows<Epilogue>) put_ones<T, Shape>(ring_memory + (ring.ones() - memory));
    auto* floats = reinterpret_cast<float*>(ring_memory + (ring.barriers + 16 * Shape::kStages - memory));
    if (threadIdx.x == 0) ring.init(list.cluster);
    if (threadIdx.x == 32) {
        MILLRACE_ASM("prefetch.tensormap [%0];" ::"l"(&list.all[0].left) : "memory");
        MILLRACE_ASM("prefetch.tensormap [%0];" ::"l"(&list.all[0].right) : "memory");
    }
    if (list.cluster > 1)
        meet_cluster();
    else
        __syncthreads();
    if (threadIdx.x < 128) {
        if constexpr (Shape::kBlocks == 1) hopper::give_registers<40>();
        if (threadIdx.x == 0)
            copy_tiles<Shape, kLeftRows, kRightRows>(list, ring);
        else
            begin_kernel();
        return;
    }
    begin_kernel();
    if constexpr (Shape::kBlocks == 1) hopper::take_registers<232>();
    multiply_tiles<T, Shape, kLeftRows, kRightRows, Epilogue>(list, ring, floats, arrived_before);
#endif
}

// Host side: which shape of tiles, how many blocks share one, and the launch.

/// One product of a launch: left and right as their memory is; the summed index is along the columns or the rows of each.
template <class Args>
struct Factors {
    tensor::Operand left, right;
    Extent extent;
    Args args;
};

/// Bytes that the blocks of a multiprocessor may ask for together (compute capability 9.0).
constexpr std::size_t kSharedLimit = 226 * 1024;

/// Memory that blocks leave each other parts of sums in.
struct Exchange {
    DeviceTable partial, arrived;
};

/// The problems of a launch but for their memory: where in it they begin is in `partial` and `arrived` as a number of tiles.
template <class Shape, bool kLeftRows, bool kRightRows, class Args>
base::Status describe(const Factors<Args>& f, const Plan& plan, int cluster, Problem<Args>& p) {
    const bool mapped = make_tensor_map(p.left, f.left, kLeftRows ? kSlice : Shape::kRows) &&
                        make_tensor_map(p.right, f.right, kRightRows ? kSlice : Shape::kWide / cluster);
    if (!mapped) return base::Error{"the driver makes no tensor maps; it is older than CUDA 12"};
    const auto varies = [](std::int32_t count, std::int64_t stride) { return count > 1 && stride != 0 ? 1 : 0; };
    p.left_g = varies(f.left.g, f.left.stride_g);
    p.left_k = varies(f.left.k, f.left.stride_k);
    p.right_g = varies(f.right.g, f.right.stride_g);
    p.right_k = varies(f.right.k, f.right.stride_k);
    p.rows = f.extent.rows;
    p.cols = f.extent.cols;
    p.slices = (f.extent.summed + kSlice - 1) / kSlice;
    p.groups = f.extent.groups;
    p.row_tiles = (p.rows + Shape::kRows - 1) / Shape::kRows;
    p.col_tiles = (p.cols + Shape::kWide - 1) / Shape::kWide;
    p.splits = splits_of(p.slices, plan.splits);
    p.stacks = (p.row_tiles + cluster - 1) / cluster;
    p.args = f.args;
    return base::ok();
}

template <class T, class Shape, bool kLeftRows, bool kRightRows, class Epilogue, int kMost>
KernelResult make_shaped(Context& c, std::span<const Factors<typename Epilogue::Args>> all, const Plan& plan, bool early) {
    using Args = typename Epilogue::Args;
    constexpr std::size_t kTileFloats = std::size_t{Shape::kRows} * (Shape::kWide + (sums_rows<Epilogue> ? 8 : 0));
    constexpr std::size_t kBytes = Shape::bytes(Epilogue::kConstants, Epilogue::kColumnValues, sums_rows<Epilogue>);
    static_assert(kBytes <= kSharedLimit / Shape::kBlocks);
    Problems<Args, kMost> list{};
    list.early = early;
    // Summed rows are copied in blocks of 64 columns, of which each block of a cluster needs one.
    list.cluster = kRightRows ? std::min(plan.cluster, Shape::kWide / 64) : plan.cluster;
    std::size_t shared = 0;  // tiles whose slices blocks share
    for (const Factors<Args>& f : all) {
        Problem<Args>& p = list.all[list.count++];
        MILLRACE_TRY((describe<Shape, kLeftRows, kRightRows>(f, plan, list.cluster, p)));
        const int matrices = f.extent.groups * f.extent.members;
        p.first = list.units;
        list.units += p.stacks * p.col_tiles * matrices * p.splits;
        if (p.splits > 1) shared += static_cast<std::size_t>(p.row_tiles * p.col_tiles * matrices);
    }
    Exchange exchange;
    if (shared > 0) {
        const auto splits = static_cast<std::size_t>(plan.splits);
        MILLRACE_LET(partial, zero_table(c, sizeof(float) * shared * kTileFloats * splits));
        MILLRACE_LET(arrived, zero_table(c, sizeof(std::int32_t) * shared));
        exchange = {partial, arrived};
        auto* sums = static_cast<float*>(partial);
        auto* counts = static_cast<std::int32_t*>(arrived);
        for (std::size_t i = 0; i < all.size(); ++i) {
            Problem<Args>& p = list.all[i];
            p.partial = sums;
            p.arrived = counts;
            if (p.splits == 1) continue;
            const auto tiles = static_cast<std::size_t>(p.row_tiles * p.col_tiles * all[i].extent.groups * all[i].extent.members);
            sums += tiles * kTileFloats * splits;
            counts += tiles;
        }
    }
    const auto kernel = product_kernel<T, Shape, kLeftRows, kRightRows, Epilogue, Problems<Args, kMost>>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const auto cluster = static_cast<unsigned>(list.cluster);
    const int seats = plan.seats > 0 ? plan.seats
                      : cluster == 1 ? c.multiprocessors * Shape::kBlocks
                                     : clusters_at_once(reinterpret_cast<const void*>(kernel), Shape::kThreads, kBytes, cluster);
    const dim3 grid(static_cast<unsigned>(std::min(list.units, seats)), 1, cluster);
    return make_kernel([list, kernel, grid, cluster, exchange, stream = c.stream] {
        launch_clusters(kernel, grid, dim3(Shape::kThreads), cluster, kBytes, stream, list);
    });
}

/// kMost: products of a launch at most. early: nothing writes the right operands in the launch in front.
template <class T, bool kLeftRows, bool kRightRows, class Epilogue, int kMost = 1>
KernelResult make_products(Context& c, std::span<const Factors<typename Epilogue::Args>> all, const Plan& plan,
                           bool early = false) {
    const auto make = [&]<class Shape>(Shape) {
        return make_shaped<T, Shape, kLeftRows, kRightRows, Epilogue, kMost>(c, all, plan, early);
    };
    switch (plan.shape) {
        case TileShape::small: return make(SmallTile{});
        case TileShape::square: return make(SquareTile{});
        case TileShape::turns: return make(TurnsTile{});
        case TileShape::wide: break;
    }
    if constexpr (Epilogue::kColumnValues == 0)
        return make(WideTile{});
    else
        return base::Error{"a wide tile has no room for sums of columns"};
}

}  // namespace millrace::ops::cuda::tile
