// Weight gradients of many layers in one launch: every block computes one tile of one layer's dw = dz^T x.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/cuda/squares.h"
#include "ops/cuda/tensor_core.cuh"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"
#include "ops/dense/tiled.h"
#include "ops/dense/wgrad_tile.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 128, kTile = 64, kDepth = 64, kPitch = kTile + 8;  // the pitch keeps ldmatrix free of bank conflicts

/// A thread's share of kDepth rows of a tile, on its way to shared memory.
struct Share {
    uint4 v[kDepth * (kTile / 8) / kThreads];

    __device__ void fetch(const bf16* from, int ld, int row0, int rows, int cols, bool vector) {
#pragma unroll
        for (int i = 0; i < kDepth * (kTile / 8) / kThreads; ++i) {
            const int row = row_of(i), at = column();
            const bf16* source = row0 + row < rows ? from + std::int64_t{row0 + row} * ld : nullptr;
            v[i] = vector ? fetch8<true>(source, at, cols) : fetch8<false>(source, at, cols);
        }
    }
    __device__ void put(bf16* to) const {
#pragma unroll
        for (int i = 0; i < kDepth * (kTile / 8) / kThreads; ++i)
            *reinterpret_cast<uint4*>(to + row_of(i) * kPitch + column()) = v[i];
    }

private:
    static __device__ int row_of(int i) { return static_cast<int>(threadIdx.x) / (kTile / 8) + i * (kThreads / (kTile / 8)); }
    static __device__ int column() { return 8 * (static_cast<int>(threadIdx.x) % (kTile / 8)); }
};

__global__ void __launch_bounds__(kThreads) wgrad_kernel(const WgradTile* tiles) {
    __shared__ __align__(16) bf16 dz[kDepth * kPitch];
    __shared__ __align__(16) bf16 x[kDepth * kPitch];
    __shared__ float sums[32];
    const WgradTile tile = tiles[blockIdx.x];  // no kernel writes the table
    begin_kernel();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int out0 = 32 * (warp & 1), in0 = 32 * (warp >> 1);
    const int part = lane / 8, line = lane % 8;
    float acc[2][4][4] = {};
    Share next_dz, next_x;
    const auto fetch = [&](int row0) {
        next_dz.fetch(tile.dz, tile.ld_dz, row0, tile.depth, tile.outputs, tile.vector_dz);
        next_x.fetch(tile.x, tile.ld_x, row0, tile.depth, tile.inputs, tile.vector_x);
    };
    fetch(0);
    for (int row0 = 0; row0 < tile.depth; row0 += kDepth) {
        __syncthreads();
        next_dz.put(dz);
        next_x.put(x);
        __syncthreads();
        if (row0 + kDepth < tile.depth) fetch(row0 + kDepth);  // under way during the products
        const int steps = min(kDepth, (tile.depth - row0 + 15) / 16 * 16) / 16;
        for (int s = 0; s < steps; ++s) {
            std::uint32_t a[2][4], b[2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m)
                load_transposed(a[m], dz + (16 * s + (part >> 1) * 8 + line) * kPitch + out0 + 16 * m + (part & 1) * 8);
#pragma unroll
            for (int n = 0; n < 2; ++n)
                load_transposed(b[n], x + (16 * s + (part & 1) * 8 + line) * kPitch + in0 + 16 * n + (part >> 1) * 8);
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    mma_bf16(acc[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[n / 2][2 * (n & 1)], b[n / 2][2 * (n & 1) + 1]);
        }
    }
    float squares = 0;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int row = out0 + 16 * m + lane / 4, col = in0 + 8 * n + 2 * (lane & 3);
            squares += put_pair(tile, row, col, acc[m][n][0], acc[m][n][1]);
            squares += put_pair(tile, row + 8, col, acc[m][n][2], acc[m][n][3]);
        }
    put_squares(tile, squares, sums);
}

/// Tiles of `outputs` x `inputs` of all records.
std::vector<WgradTile> tiles_of(std::span<const Bound> wgrads, int outputs, int inputs) {
    using namespace linear_wgrad;
    std::vector<WgradTile> tiles;
    for (const Bound& b : wgrads) {
        const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
        for (int k = 0; k < ow.k; ++k)
            for (int g = 0; g < ow.g; ++g)
                for (int row = 0; row < ow.rows; row += outputs)
                    for (int col = 0; col < ow.cols; col += inputs) {
                        WgradTile t{};
                        t.dz = oz.at<const bf16>(k, g) + row;
                        t.x = ox.at<const bf16>(k, g) + col;
                        t.dw = ow.at<float>(k, g, row) + col;
                        t.ld_dz = static_cast<std::int32_t>(oz.stride_row);
                        t.ld_x = static_cast<std::int32_t>(ox.stride_row);
                        t.ld_dw = static_cast<std::int32_t>(ow.stride_row);
                        t.depth = oz.rows;
                        t.outputs = std::min(outputs, ow.rows - row);
                        t.inputs = std::min(inputs, ow.cols - col);
                        t.vector_dz = aligned16(oz);
                        t.vector_x = aligned16(ox);
                        t.pairs = reinterpret_cast<std::uintptr_t>(t.dw) % 8 == 0 && t.ld_dw % 2 == 0;
                        t.accumulate = b.accumulates(dw);
                        tiles.push_back(t);
                    }
    }
    return tiles;
}

/// Lets the tiles of all records, in the order of tiles_of, leave their squares in tables that the result holds.
base::Result<std::vector<DeviceTable>> leave_squares(Context& c, std::span<const Bound> wgrads, std::vector<WgradTile>& tiles,
                                                     int outputs, int inputs) {
    std::vector<DeviceTable> tables;
    auto tile = tiles.begin();
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        const int parts = dw.g * static_cast<int>(blocks_for(dw.rows, outputs) * blocks_for(dw.cols, inputs));
        MILLRACE_LET(table, leave_squares(c, dw, parts));
        for (int i = 0; i < dw.k * parts; ++i, ++tile) tile->squares = table ? static_cast<float*>(table) + i : nullptr;
        tables.push_back(table);
    }
    return tables;
}

}  // namespace

bool groups_wgrad(const Context& c, const Bound& b) {
    const Operand& x = b[linear_wgrad::x];
    if (x.dtype != tensor::DType::bf16 || is_narrow(c, b[linear_wgrad::dz])) return false;
    return c.deterministic || x.rows < c.library_rows;
}

namespace {

/// Tiles of one kind for all records.
KernelResult make_blocks(Context& c, std::span<const Bound> wgrads) {
    auto tiles = tiles_of(wgrads, kRingOutputs, kRingInputs);
    // Pinned runs keep one kernel, however many tiles stand beside each other.
    if (!c.deterministic && takes_ring_wgrad(c, tiles)) {
        MILLRACE_LET(squares, leave_squares(c, wgrads, tiles, kRingOutputs, kRingInputs));
        return make_ring_wgrad(c, tiles, squares);
    }
    tiles = tiles_of(wgrads, kTile, kTile);
    if (tiles.empty()) return make_kernel([] {});
    MILLRACE_LET(squares, leave_squares(c, wgrads, tiles, kTile, kTile));
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(WgradTile)));
    return make_kernel([table, squares, stream = c.stream, grid = dim3(static_cast<unsigned>(tiles.size()))] {
        launch(wgrad_kernel, grid, dim3(kThreads), 0, stream, table);
    });
}

double blocks_time(const Context& c, std::span<const Bound> wgrads) {
    constexpr double kLaunch = 2, kStep = 1.95;
    constexpr int kPlaces = 5;  // blocks that a multiprocessor holds
    double tiles = 0, longest = 0;
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        tiles += 1.0 * blocks_for(dw.rows, kTile) * blocks_for(dw.cols, kTile) * dw.g * dw.k;
        longest = std::max<double>(longest, blocks_for(b[linear_wgrad::dz].rows, kDepth));
    }
    return kLaunch + kStep * longest * std::max(1.0, tiles / (kPlaces * c.multiprocessors));
}

/// One after the other.
KernelResult make_library(Context& c, std::span<const Bound> wgrads) {
    std::vector<std::shared_ptr<Kernel>> all;
    for (const Bound& b : wgrads) {
        Operand in = b[linear_wgrad::x];
        in.cols = b[linear_wgrad::dw].cols;
        MILLRACE_LET(
            made, make_product(c, Product::wgrad, b[linear_wgrad::dz], in, b[linear_wgrad::dw], b.accumulates(linear_wgrad::dw)));
        all.emplace_back(std::move(made));
    }
    return make_kernel([all] {
        for (const std::shared_ptr<Kernel>& one : all) one->run();
    });
}

constexpr Form kWgradForms[] = {
    {"tiles",
     [](const Context& c, std::span<const Bound> r) {
         const char* why = nullptr;
         for (const Bound& b : r)
             if (why == nullptr) why = tiled::refuses_wgrad(c, b);
         return why;
     },
     tiled::wgrads_time, tiled::make_wgrads},
    {"blocks",
     [](const Context& c, std::span<const Bound> r) -> const char* {
         const bool all = std::ranges::all_of(r, [&](const Bound& b) { return groups_wgrad(c, b); });
         return all ? nullptr : "not bf16, or more rows than a block sums over";
     },
     blocks_time, make_blocks},
    {"library",
     [](const Context& c, std::span<const Bound>) -> const char* {
         return c.deterministic ? "its sums are not pinned" : nullptr;
     },
     [](const Context&, std::span<const Bound> r) {
         double time = 0;
         for (const Bound& b : r)
             time += library_product_time(2.0 * static_cast<double>(b[linear_wgrad::dw].count()) * b[linear_wgrad::dz].rows);
         return time;
     },
     make_library},
};

}  // namespace

bool shares_launch(const Context& c, const Bound& b) {
    return !is_narrow(c, b[linear_wgrad::dz]) && (groups_wgrad(c, b) || tiled::refuses_wgrad(c, b) == nullptr);
}

Match match_grouped_wgrad(const Context& c, const Window& records) {
    return Match::first(count_wgrads(records, [&](const Bound& b) { return shares_launch(c, b); }));
}

KernelResult make_grouped_wgrad(Context& c, std::span<const Bound> wgrads) {
    // Those that bulk copies cannot read are few and small: they have a launch of their own, unless one launch without such
    // copies does all of them sooner.
    std::vector<Bound> some[2];
    for (const Bound& b : wgrads) some[tiled::refuses_wgrad(c, b) == nullptr ? 0 : 1].push_back(b);
    const auto time = [&](std::span<const Bound> part) {
        const Form* form = part.empty() ? nullptr : choose_form(c, "linear_wgrad", kWgradForms, part);
        return form == nullptr ? 0 : form->predict(c, part);
    };
    if (some[0].empty() || some[1].empty() || c.deterministic ||
        decide(c, "join_linear_wgrad", wgrads, time(wgrads) <= time(some[0]) + time(some[1])))
        return make_form(c, "linear_wgrad", kWgradForms, wgrads);
    MILLRACE_LET(first, make_form(c, "linear_wgrad", kWgradForms, some[0]));
    MILLRACE_LET(second, make_form(c, "linear_wgrad", kWgradForms, some[1]));
    const char* form = first->form;
    const double predicted = first->predicted + second->predicted;
    auto both =
        make_kernel([first = std::shared_ptr<Kernel>(std::move(first)), second = std::shared_ptr<Kernel>(std::move(second))] {
            first->run();
            second->run();
        });
    both->form = form;
    both->predicted = predicted;
    return KernelResult(std::move(both));
}

}  // namespace millrace::ops::cuda
