// Every block computes one tile of one layer's dw = dz^T x.

#include "ops/dense/wgrad_blocks.h"

#include <vector>

#include "ops/cuda/squares.h"
#include "ops/dense/dense.h"
#include "ops/tile/mma.cuh"
#include "ops/tile/summed_rows.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kTile = tile::SummedRows<bf16>::kTile, kThreads = tile::SummedRows<bf16>::kThreads;

/// A tile of one layer, as blocks find it in a table.
template <class T>
struct WgradTile {
    tile::Columns<T> dz, x;
    float* dw;
    float* squares;  ///< where the sum of the squares of what was written goes; null: nowhere
    std::int32_t ld_dw;
    std::int32_t depth;  ///< rows of the batch
    bool pairs;          ///< rows of dw begin at multiples of 8 bytes
    bool accumulate;
};

/// Two neighbours of a row of the tile. Returns the sum of the squares of what was written.
template <class T>
__device__ float put_pair(const WgradTile<T>& tile, int row, int col, float first, float second) {
    if (row >= tile.dz.count || col >= tile.x.count) return 0;
    float* at = tile.dw + std::int64_t{row} * tile.ld_dw + col;
    const bool both = col + 1 < tile.x.count;
    if (tile.accumulate) {
        first += at[0];
        if (both) second += at[1];
    }
    if (tile.pairs && both) {
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
    } else {
        at[0] = first;
        if (both) at[1] = second;
    }
    return first * first + (both ? second * second : 0);
}

template <class E>
__global__ void __launch_bounds__(kThreads) wgrad_kernel(const WgradTile<tile::Stored<E>>* tiles) {
    using Product = tile::SummedRows<E>;
    __shared__ Product product;
    __shared__ float shared[32];
    const WgradTile<tile::Stored<E>> tile = tiles[blockIdx.x];  // no kernel writes the table
    begin_kernel();
    typename Product::Sums sums = {};
    product.multiply(sums, tile.dz, tile.x, tile.depth);
    float squares = 0;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int row = Product::left() + 16 * m, col = Product::right() + 8 * n;
            squares += put_pair(tile, row, col, sums[m][n][0], sums[m][n][1]);
            squares += put_pair(tile, row + 8, col, sums[m][n][2], sums[m][n][3]);
        }
    if (tile.squares == nullptr) return;
    squares = block_sum(squares, shared);
    if (threadIdx.x == 0) *tile.squares = squares;
}

template <class T>
void append_tiles(const Bound& b, float* squares, std::vector<WgradTile<T>>& tiles) {
    using namespace linear_wgrad;
    const Operand &oz = b[dz], &ox = b[x], &ow = b[dw];
    for (int k = 0; k < ow.k; ++k)
        for (int g = 0; g < ow.g; ++g)
            for (int row = 0; row < ow.rows; row += kTile)
                for (int col = 0; col < ow.cols; col += kTile) {
                    WgradTile<T> t{};
                    t.dz = {oz.at<const T>(k, g) + row, static_cast<int>(oz.stride_row), std::min(kTile, ow.rows - row),
                            aligned16(oz)};
                    t.x = {ox.at<const T>(k, g) + col, static_cast<int>(ox.stride_row), std::min(kTile, ow.cols - col),
                           aligned16(ox)};
                    t.dw = ow.at<float>(k, g, row) + col;
                    t.squares = squares == nullptr ? nullptr : squares++;
                    t.ld_dw = static_cast<std::int32_t>(ow.stride_row);
                    t.depth = oz.rows;
                    t.pairs = reinterpret_cast<std::uintptr_t>(t.dw) % 8 == 0 && t.ld_dw % 2 == 0;
                    t.accumulate = b.accumulates(dw);
                    tiles.push_back(t);
                }
}

template <class E>
KernelResult make_blocks(Context& c, std::span<const Bound> wgrads) {
    using T = tile::Stored<E>;
    std::vector<WgradTile<T>> tiles;
    std::vector<DeviceTable> held;
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        const int parts = dw.g * static_cast<int>(blocks_for(dw.rows, kTile) * blocks_for(dw.cols, kTile));
        MILLRACE_LET(squares, leave_squares(c, dw, parts));
        append_tiles(b, squares ? static_cast<float*>(squares) : nullptr, tiles);
        held.push_back(squares);
    }
    if (tiles.empty()) return make_kernel([] {});
    MILLRACE_LET(table, upload_table(c, tiles.data(), tiles.size() * sizeof(WgradTile<T>)));
    return make_kernel([table, held, stream = c.stream, grid = dim3(static_cast<unsigned>(tiles.size()))] {
        launch(wgrad_kernel<E>, grid, dim3(kThreads), 0, stream, table);
    });
}

}  // namespace

KernelResult make_wgrad_blocks(Context& c, std::span<const Bound> wgrads) {
    return tile::by_element(wgrads.front()[linear_wgrad::x].dtype, c.tf32 && !c.deterministic,
                            [&]<class E>(E) { return make_blocks<E>(c, wgrads); });
}

double wgrad_blocks_time(const Context& c, std::span<const Bound> wgrads) {
    const bool half = tensor::size_of(wgrads.front()[linear_wgrad::x].dtype) == 2;
    const double launch = 2, step = half ? 1.95 : 2.6;
    const int places = half ? 5 : 3;  // blocks that a multiprocessor holds
    double tiles = 0, longest = 0;
    for (const Bound& b : wgrads) {
        const Operand& dw = b[linear_wgrad::dw];
        tiles += 1.0 * blocks_for(dw.rows, kTile) * blocks_for(dw.cols, kTile) * dw.g * dw.k;
        longest = std::max<double>(longest, blocks_for(b[linear_wgrad::dz].rows, kTile));
    }
    return launch + step * longest * std::max(1.0, tiles / (places * c.multiprocessors));
}

}  // namespace millrace::ops::cuda
