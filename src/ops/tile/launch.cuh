#pragma once
// Host side of the products of product.cuh: which shape of tiles, how many blocks share one, and the launch.

#include <span>
#include <vector>

#include "ops/tile/plan.cuh"
#include "ops/tile/product.cuh"
#include "ops/tile/tensor_map.cuh"

namespace millrace::ops::cuda::tile {

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
