// linear_dgrad and dense_backward in wide tiles (wide_tile.cuh): dz of the layer above times its weights, then dropout,
// activation and batch norm of this layer in reverse.

#include "ops/cuda/context.h"
#include "ops/dense/fused.h"
#include "ops/dense/layer_args.cuh"
#include "ops/dense/wide_tile.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace wide;

/// The layer is absent when `dz` is null, then dx is written.
struct WideBackward : LayerBackward<bf16> {
    Mat<const bf16> dz_above, w;
    Mat<bf16> dx;
    int rows, row_tile, row_tiles;
    int stages;                      ///< of the ring, stages_for
    int summed, product_cols, cols;  ///< columns of one group of dz_above, of dx, of dz
    bool whole_runs;                 ///< runs of what is written, of dx and of saved begin at multiples of 16 bytes
    bool whole_left;                 ///< rows of dz_above are whole pieces
    bool add_dx, early;
    int ring;  ///< 16-byte places of the ring in shared memory; xhat follows, four places of each thread
};

template <int kColumns>
struct alignas(16) ColumnTable {
    float gamma[kColumns], beta[kColumns];
    float scale[kColumns], sum[kColumns], dot[kColumns];  ///< dz = scale * du - sum - xhat * dot
};

/// Turns a row of sums, pairs of columns of each tile, into a run of eight columns: lane q of four gets tile q.
__device__ inline void to_run(float (&v)[8]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    float at[4][2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int t = 0; t < 4; t += 2) {  // exchange with the neighbour: tiles of its parity
            const float low = v[2 * t + e], up = v[2 * t + 2 + e], kept = odd ? up : low;
            const float got = __shfl_xor_sync(0xffffffffu, odd ? low : up, 1);
            at[t][e] = odd ? got : kept;
            at[t + 1][e] = odd ? kept : got;
        }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            const float kept = high ? at[t + 2][e] : at[t][e];
            const float got = __shfl_xor_sync(0xffffffffu, high ? at[t][e] : at[t + 2][e], 2);
            v[2 * t + e] = high ? got : kept;
            v[2 * (t + 2) + e] = high ? kept : got;
        }
}

/// Eight values from memory, zeros beyond `count`.
__device__ inline uint4 load_eight(const bf16* at, int count, bool whole) {
    if (whole && count >= 8) return *reinterpret_cast<const uint4*>(at);
    return fetch8<false>(at, 0, count);
}
__device__ inline float half_of(const uint4& eight, int j) {
    const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
    return j % 2 == 0 ? low_half(words[j / 2]) : high_half(words[j / 2]);
}

/// From the sums of du and of du * xhat over a thread's rows those over the batch: what `table` needs, and the gradients.
template <class T>
__device__ void finish_sums(const WideBackward& a, float (&sum)[8], float (&dot)[8], const Owner<T>& own, float* strips,
                            ColumnTable<T::kColumns>& table, int k, int product_group, int column0, float factor) {
    sum_over_rows<T>(sum);
    if (a.p.norm == Norm::batch_train) sum_over_rows<T>(dot);
    if ((threadIdx.x & 31) < 4) {
        float* to = strips + 2 * T::kColumns * own.strip + own.column;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            to[j] = sum[j];
            to[T::kColumns + j] = dot[j];
        }
    }
    __syncthreads();
    if (const int c = threadIdx.x; c < T::kColumns) {
        float totals[2] = {};
#pragma unroll 1
        for (int s = 0; s < static_cast<int>(blockDim.x) / (32 * T::kAcross); ++s) {
            totals[0] += strips[2 * T::kColumns * s + c];
            totals[1] += strips[2 * T::kColumns * s + T::kColumns + c];
        }
        const float share = __fdividef(factor, static_cast<float>(a.rows));
        table.scale[c] = factor;
        table.sum[c] = share * totals[0];
        table.dot[c] = share * totals[1];
        if (const int column = column0 + c; column < a.product_cols) {
            const int flat = product_group * a.product_cols + column;
            a.put_gradients(k, flat / a.cols, flat % a.cols, totals[0], totals[1]);
        }
    }
}

/// kBlocks that a multiprocessor holds at once: a third costs registers, whose values then go through memory.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kMostThreads, kBlocks) wide_backward_kernel(const __grid_constant__ WideBackward a) {
    extern __shared__ uint4 memory[];
    __shared__ ColumnTable<T::kColumns> table;
    if (!a.early) begin_kernel();
    const int k = blockIdx.z / a.row_tiles, row0 = (blockIdx.z % a.row_tiles) * a.row_tile, product_group = blockIdx.y;
    const int rows = min(a.row_tile, a.rows - row0), column0 = blockIdx.x * T::kColumns;
    const RightSummed<T> right{a.w.row(k, product_group, 0) + column0, a.w.stride_row, a.product_cols - column0, a.summed};
    begin_right<T>(memory, a.stages, right);
    if (a.early) begin_kernel();

    const Owner<T> own;
    const int column = column0 + own.column, count = a.product_cols - column;
    const int flat = product_group * a.product_cols + column;  // groups of dx lie side by side, and so do those of dy
    const int group = a.dz ? flat / a.cols : product_group, layer_column = a.dz ? flat % a.cols : column;
    const bool batch = a.dz && a.p.norm == Norm::batch_train;
    uint4* saved = memory + a.ring + threadIdx.x;  // a thread reads what it copied itself: rows blockDim.x places apart
    if (a.dz && a.saved) {
#pragma unroll T::kRolled ? 1 : 4
        for (int i = 0; i < 4; ++i) {
            const bool there = own.row + 8 * i < rows && count > 0;
            const bf16* at = there ? a.saved.row(k, group, own.row + 8 * i) + layer_column : nullptr;
            uint4* to = saved + i * static_cast<int>(blockDim.x);
            if (!there || (a.whole_runs && count >= 8))
                copy16(shared_address(to), there ? at : a.saved.data, there);
            else
                *to = fetch8<false>(at, 0, count);
        }
    }
    // Thread c is responsible for column c. Its values are asked for here and needed behind the first copies.
    float gamma = 0, beta = 0, factor = 0;
    if (const int c = threadIdx.x; batch && c < T::kColumns && column0 + c < a.product_cols) {
        const int at = product_group * a.product_cols + column0 + c;
        gamma = a.gamma.row(k, at / a.cols, 0)[at % a.cols];
        beta = a.beta.row(k, at / a.cols, 0)[at % a.cols];
        factor = a.inv_std.row(k, at / a.cols, 0)[at % a.cols];
    }
    const DropoutKey key = a.dz ? dropout_key({a.p.dropout, a.p.op_number}, a.state, k) : DropoutKey{};
    Sums<T::kTiles> acc = {};
    const Left<T> left{a.dz_above.row(k, product_group, row0), a.dz_above.stride_row, rows, a.summed, a.whole_left};
    Mask<T> mask;
    product<T>(acc, memory, a.stages, left, right, own, [&] {
        const std::uint64_t row = static_cast<std::uint64_t>(group) * a.rows + own.row;
        if (count > 0 && own.row < rows) mask.draw(key, row * a.cols + layer_column, std::uint64_t{8} * a.cols);
        factor *= gamma;
        if (const int c = threadIdx.x; c < T::kColumns) {
            table.gamma[c] = gamma;
            table.beta[c] = beta;
        }
    });

    const bool relu = a.dz && a.p.activation == Activation::relu;
    float sum[8] = {}, dot[8] = {};
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        const bool there = own.row + 8 * i < rows && count > 0;
        float v[8];
        take_row<T::kTiles>(acc, v);
        to_run(v);
        if (a.add_dx && there) {
            const bf16* before = a.dx.row(k, product_group, row0 + own.row + 8 * i) + column;
            const uint4 old = load_eight(before, count, a.whole_runs);
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] += half_of(old, j);
        }
        mask.apply(v);
        // Read for each row: kept in registers, these values would cost a third of the warps.
        forget_memory();
        const uint4 eight = a.dz && a.saved ? saved[i * static_cast<int>(blockDim.x)] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j0 = 0; j0 < 8; j0 += 4) {
            float scale[4] = {1, 1, 1, 1}, shift[4] = {};
            if (batch) {
                load_columns<4>(table.gamma + own.column + j0, scale);
                load_columns<4>(table.beta + own.column + j0, shift);
            }
#pragma unroll
            for (int j = j0; j < j0 + 4; ++j) {
                const float u = scale[j - j0] * half_of(eight, j) + shift[j - j0];
                v[j] = there ? v[j] * (!relu || u > 0 ? 1.0f : 0.0f) : 0;
                sum[j] += v[j];
                dot[j] += v[j] * half_of(eight, j);
            }
        }
        put_row<T::kTiles>(acc, v);
    }
    if (a.dz) finish_sums<T>(a, sum, dot, own, reinterpret_cast<float*>(memory), table, k, product_group, column0, factor);
    __syncthreads();
    if (count <= 0) return;
    const Mat<bf16> target = a.dz ? a.dz : a.dx;
    bf16* out = target.row(k, group, row0 + own.row) + layer_column;
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        if (own.row + 8 * i >= rows) break;
        float v[8];
        take_row<T::kTiles>(acc, v);
        if (batch) {
            forget_memory();
            const uint4 eight = saved[i * static_cast<int>(blockDim.x)];
#pragma unroll
            for (int j0 = 0; j0 < 8; j0 += 4) {
                float scale[4], mean[4], along[4];
                load_columns<4>(table.scale + own.column + j0, scale);
                load_columns<4>(table.sum + own.column + j0, mean);
                load_columns<4>(table.dot + own.column + j0, along);
#pragma unroll
                for (int j = j0; j < j0 + 4; ++j) v[j] = scale[j - j0] * v[j] - mean[j - j0] - half_of(eight, j) * along[j - j0];
            }
        }
        std::uint32_t words[4];
        pack_run<8>(v, words);
        store_words<8>(out, words, count, a.whole_runs);
        out += 8 * target.stride_row;
    }
}

}  // namespace

bool has_wide_runs(const Bound& d, const Bound& b) {
    const int product_cols = d[linear_dgrad::dx].cols, cols = b[dense_backward::dz].cols;
    return product_cols == cols || (product_cols % 8 == 0 && cols % 8 == 0);
}

KernelResult make_wide_backward(Context& c, const Bound& d, const Bound* b, const Tiling& tiling) {
    const Operand &dx = d[linear_dgrad::dx], &dz = d[linear_dgrad::dz], &w = d[linear_dgrad::w];
    WideBackward a{};
    bool whole_runs = aligned16(dx);
    if (b) {
        static_cast<LayerBackward<bf16>&>(a) = layer_backward<bf16>(*b);
        const Operand &out = (*b)[dense_backward::dz], &saved = (*b)[dense_backward::saved];
        a.cols = out.cols;
        whole_runs = aligned16(out) && (!d.accumulates(linear_dgrad::dx) || whole_runs) && (!saved.present() || aligned16(saved));
    }
    a.dz_above = dz;
    a.w = w;
    a.dx = dx;
    a.rows = dx.rows;
    a.summed = dz.cols;
    a.product_cols = dx.cols;
    a.whole_left = aligned16(dz) && dz.cols % 8 == 0;
    a.whole_runs = whole_runs;
    a.add_dx = d.accumulates(linear_dgrad::dx);
    a.row_tile = tiling.row_tile;
    a.row_tiles = tiling.row_tiles;
    a.early = c.reads_early({&w});
    const dim3 grid(blocks_for(dx.cols, tiling.columns), dx.g, dx.k * tiling.row_tiles);
    const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
    const std::size_t kept = a.dz.data != nullptr && a.saved.data != nullptr ? std::size_t{64} * tiling.threads() : 0;
    const bool rolled = blocks <= c.multiprocessors, many = blocks > 2 * c.multiprocessors;
    const auto kernel = !tiling.whole_pieces   ? wide_backward_kernel<Tile<4, 1, false>, 2>
                        : tiling.columns == 32 ? rolled ? wide_backward_kernel<Tile<4, 1, true, true, true>, 2>
                                                        : wide_backward_kernel<Tile<4, 1, true, false, true>, 2>
                        : rolled ? wide_backward_kernel<Tile<4, 2, true, true, true>, 2>
                        : many                 ? wide_backward_kernel<Tile<4, 2, true, false, true>, 3>
                                               : wide_backward_kernel<Tile<4, 2, true, false, true>, 2>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    a.stages = rolled && tiling.ring_bytes(a.summed, kDeep) + kept <= c.shared_limit ? kDeep : kStages;
    const std::size_t ring = tiling.ring_bytes(a.summed, a.stages);
    a.ring = static_cast<int>(ring / 16);
    return make_launch(c, kernel, grid, dim3(tiling.threads()), ring + kept, a);
}

}  // namespace millrace::ops::cuda
