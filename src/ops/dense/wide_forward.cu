// dense_forward in wide tiles (wide_tile.cuh).

#include "ops/dense/forms.h"
#include "ops/dense/layer_args.cuh"
#include "ops/dense/wide_tile.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace wide;

template <class E>
struct WideForward : FusedForward<E> {
    int stages;       ///< of the ring, stages_for
    bool whole_runs;  ///< runs of y and saved begin at multiples of 16 bytes
};

/// u = gamma * (z - mean) * inv + beta for each column of a tile; z without its bias, which is in the mean.
template <int kColumns>
struct alignas(16) ColumnTable {
    float mean[kColumns], inv[kColumns], gamma[kColumns], beta[kColumns], bias[kColumns];
};

/// Statistics of the columns over all rows, from those of the strips; the first thread of a column writes what is kept of them.
template <class T>
__device__ void batch_statistics(const WideForward<typename T::Element>& a, const Sums<T::kTiles>& acc, const Owner<T>& own,
                                 float* strips, int k, int g, int column0, ColumnTable<T::kColumns>& table) {
    float2 old = make_float2(0, 1);  // asked for early
    const int column = column0 + static_cast<int>(threadIdx.x);
    const bool responsible = threadIdx.x < T::kColumns && column < a.out;
    if (responsible) old = make_float2(a.running_mean.row(k, g, 0)[column], a.running_var.row(k, g, 0)[column]);
    const int mine = min(32, a.rows - 32 * own.strip);  // may be negative: a strip without rows has no weight below
    const float share = mine > 0 ? __fdividef(1.0f, static_cast<float>(mine)) : 0;
    constexpr int kRun = T::kRun;
    float v[kRun], mean[kRun];
#pragma unroll
    for (int j = 0; j < kRun; ++j)  // rows beyond the batch are zeros
        v[j] = acc[0][j / 2][j % 2] + acc[0][j / 2][2 + j % 2] + (acc[1][j / 2][j % 2] + acc[1][j / 2][2 + j % 2]);
    sum_over_rows<T>(v);
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
        mean[j] = v[j] * share;
        v[j] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float apart = own.row + 8 * i < a.rows ? acc[i / 2][j / 2][i % 2 * 2 + j % 2] - mean[j] : 0;
            v[j] += apart * apart;
        }
    }
    sum_over_rows<T>(v);
    if ((threadIdx.x & 31) < 4) {
        float* to = strips + 2 * T::kColumns * own.strip + own.column;
#pragma unroll
        for (int j = 0; j < kRun; ++j) {
            to[j] = mean[j];
            to[T::kColumns + j] = v[j];
        }
    }
    __syncthreads();
    if (const int c = threadIdx.x; c < T::kColumns) {
        const int count = (a.rows + 31) / 32;
        const auto n = static_cast<float>(a.rows);
        const float each = __fdividef(1.0f, n);  // a division to the last bit is a call
        float total = 0, squares = 0;
#pragma unroll 1
        for (int s = 0; s < count; ++s) total += static_cast<float>(min(32, a.rows - 32 * s)) * strips[2 * T::kColumns * s + c];
        const float average = total * each;
#pragma unroll 1
        for (int s = 0; s < count; ++s) {
            const float apart = strips[2 * T::kColumns * s + c] - average;
            squares +=
                strips[2 * T::kColumns * s + T::kColumns + c] + static_cast<float>(min(32, a.rows - 32 * s)) * apart * apart;
        }
        const float var = squares * each, inv = rsqrtf(var + a.p.eps);
        table.mean[c] = average;
        table.inv[c] = inv;
        if (responsible) {
            a.inv_std.row(k, g, 0)[column] = inv;
            const float unbiased = a.rows > 1 ? __fdividef(squares, n - 1) : var, moved = average + table.bias[c];
            if (isfinite(moved) && isfinite(unbiased)) {
                a.running_mean.row(k, g, 0)[column] = old.x + a.p.momentum * (moved - old.x);
                a.running_var.row(k, g, 0)[column] = old.y + a.p.momentum * (unbiased - old.y);
            }
        }
    }
    __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(kMostThreads, T::kAcross + 1)
    wide_forward_kernel(const __grid_constant__ WideForward<typename T::Element> a) {
    using E = typename T::Element;
    constexpr int kRun = T::kRun;
    extern __shared__ uint4 memory[];
    __shared__ ColumnTable<T::kColumns> table;
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.row_tiles, row0 = (blockIdx.z % a.row_tiles) * a.row_tile, g = blockIdx.y;
    const int rows = min(a.row_tile, a.rows - row0), column0 = blockIdx.x * T::kColumns;
    const RightColumns<T> right{a.w.row(k, g, column0), a.w.stride_row, a.out - column0, a.in};
    begin_right<T>(memory, a.stages, right);
    // Thread c is responsible for column c.
    const int c = threadIdx.x, mine = column0 + c;
    const bool responsible = c < T::kColumns && mine < a.out, normed = a.p.norm != Norm::none;
    float bias = 0, gamma = 1, beta = 0;  // asked for here and needed behind the first copies
    if (responsible && a.bias) bias = __ldcg(a.bias.row(k, g, 0) + mine);
    if (responsible && normed) {
        gamma = __ldcg(a.gamma.row(k, g, 0) + mine);
        beta = __ldcg(a.beta.row(k, g, 0) + mine);
    }
    if (a.early) begin_kernel();
    const bool batch = a.p.norm == Norm::batch_train;
    const DropoutKey key = dropout_key({a.p.dropout, a.p.op_number}, a.state, k);
    const Owner<T> own;
    Sums<T::kTiles> acc = {};
    Mask<T> mask;
    product<T>(acc, memory, a.stages, Left<T>{a.x.row(k, g, row0), a.x.stride_row, rows, a.in}, right, own, [&] {
        const std::uint64_t row = static_cast<std::uint64_t>(g) * a.rows + row0 + own.row;
        if (column0 + own.column < a.out && own.row < rows)
            mask.draw(key, row * a.out + column0 + own.column, std::uint64_t{8} * a.out);
        if (c >= T::kColumns) return;
        table.gamma[c] = gamma;
        table.beta[c] = beta;
        table.bias[c] = bias;
        if (batch) return;
        const bool running = responsible && normed;
        table.mean[c] = (running ? a.running_mean.row(k, g, 0)[mine] : 0) - bias;
        table.inv[c] = running ? rsqrtf(a.running_var.row(k, g, 0)[mine] + a.p.eps) : 1;
    });
    if (batch) batch_statistics<T>(a, acc, own, reinterpret_cast<float*>(memory), k, g, column0, table);

    const bool relu = a.p.activation == Activation::relu, rounds = batch || a.saved;
    const int column = column0 + own.column, count = a.out - column;
    if (count <= 0) return;
    E* y = a.y.row(k, g, row0 + own.row) + column;
    E* saved = a.saved ? a.saved.row(k, g, row0 + own.row) + column : nullptr;
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        if (own.row + 8 * i >= rows) break;
        float v[kRun], first[kRun], second[kRun];
        std::uint32_t words[kRun / 2];
        take_row<T::kTiles>(acc, v);
        // Read again for each row: kept in registers the columns' values would cost a third of the warps.
        forget_memory();
        load_run<kRun>(table.mean + own.column, first);
        load_run<kRun>(table.inv + own.column, second);
#pragma unroll
        for (int j = 0; j < kRun; ++j) v[j] = (v[j] - first[j]) * second[j];
        if (rounds) {
            pack_run<E>(v, words);
#pragma unroll
            for (int j = 0; j < kRun; ++j) v[j] = value_of<E>(words, j);
        }
        if (saved != nullptr) {
            store_words<kRun>(saved, words, count, a.whole_runs);
            saved += 8 * a.saved.stride_row;
        }
        load_run<kRun>(table.gamma + own.column, first);
        load_run<kRun>(table.beta + own.column, second);
#pragma unroll
        for (int j = 0; j < kRun; ++j) {
            const float u = first[j] * v[j] + second[j];
            v[j] = relu && u <= 0 ? 0 : u;  // NaN passes
        }
        mask.apply(v);
        pack_run<E>(v, words);
        store_words<kRun>(y, words, count, a.whole_runs);
        y += 8 * a.y.stride_row;
    }
}

template <class E>
KernelResult make_tiles(Context& c, const Bound& b, const Tiling& tiling) {
    using namespace dense_forward;
    const Operand &ox = b[x], &oy = b[y];
    const bool whole_runs = aligned16(oy) && (!b[saved].present() || aligned16(b[saved]));
    WideForward<E> a{fused_forward<E>(c, b, tiling.row_tile, tiling.row_tiles), kStages, whole_runs};
    const dim3 grid(blocks_for(oy.cols, tiling.columns), oy.g, oy.k * tiling.row_tiles);
    a.stages = stages_for(std::int64_t{grid.x} * grid.y * grid.z, c.multiprocessors);
    if (tiling.ring_bytes(ox.cols, a.stages) > c.shared_limit) a.stages = kStages;
    const bool rolled = a.stages == kDeep;
    const auto kernel = !tiling.whole_pieces ? wide_forward_kernel<Tile<E, 4, 1, false>>
                        : tiling.columns == 16
                            ? rolled ? wide_forward_kernel<Tile<E, 2, 1, true, true>> : wide_forward_kernel<Tile<E, 2, 1, true>>
                        : tiling.columns == 32
                            ? rolled ? wide_forward_kernel<Tile<E, 4, 1, true, true>> : wide_forward_kernel<Tile<E, 4, 1, true>>
                        : rolled ? wide_forward_kernel<Tile<E, 4, 2, true, true>>
                                 : wide_forward_kernel<Tile<E, 4, 2, true>>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, grid, dim3(tiling.threads()), tiling.ring_bytes(ox.cols, a.stages), a);
}

}  // namespace

KernelResult make_wide_forward(Context& c, const Bound& b, const Tiling& tiling) {
    return b[dense_forward::y].dtype == tensor::DType::f16 ? make_tiles<f16>(c, b, tiling) : make_tiles<bf16>(c, b, tiling);
}

}  // namespace millrace::ops::cuda
