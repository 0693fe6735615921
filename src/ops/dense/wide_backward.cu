// linear_dgrad and dense_backward in wide tiles (wide_tile.cuh): dz of the layer above times its weights, then dropout,
// activation and batch norm of this layer in reverse.

#include "ops/dense/forms.h"
#include "ops/dense/layer_args.cuh"
#include "ops/dense/wide_tile.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;
using namespace wide;

template <class E>
struct WideBackward : FusedBackward<E> {
    int stages;       ///< of the ring, stages_for
    bool whole_runs;  ///< runs of what is written, of dx and of saved begin at multiples of 16 bytes
    bool whole_left;  ///< rows of dz_above are whole pieces
    int ring;         ///< 16-byte places of the ring in shared memory; xhat follows, four places of each thread
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
template <class E>
__device__ inline uint4 load_eight(const E* at, int count, bool whole) {
    if (whole && count >= 8) return *reinterpret_cast<const uint4*>(at);
    return tile::fetch_piece<false>(at, 0, count);
}
template <class E>
__device__ inline float value_in(const uint4& eight, int j) {
    const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
    return value_of<E>(words, j);
}

/// From the sums of du and of du * xhat over a thread's rows those over the batch: what `table` needs, and the gradients.
template <class T>
__device__ void finish_sums(const WideBackward<typename T::Element>& a, float (&sum)[8], float (&dot)[8], const Owner<T>& own,
                            float* strips, ColumnTable<T::kColumns>& table, int k, int product_group, int column0, float factor) {
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

/// Where a thread's values lie in the matrices.
template <class T>
struct Place {
    Owner<T> own;
    int k, row0, rows, product_group, column0;
    int column, count;        ///< first one of dx, and how many there are from it on
    int group, layer_column;  ///< in the layer

    __device__ explicit Place(const WideBackward<typename T::Element>& a)
        : k(blockIdx.z / a.row_tiles),
          row0((blockIdx.z % a.row_tiles) * a.row_tile),
          rows(min(a.row_tile, a.rows - row0)),
          product_group(blockIdx.y),
          column0(blockIdx.x * T::kColumns),
          column(column0 + own.column),
          count(a.product_cols - column) {
        const int flat = product_group * a.product_cols + column;  // groups of dx lie side by side, and so do those of dy
        group = a.dz ? flat / a.cols : product_group;
        layer_column = a.dz ? flat % a.cols : column;
    }
    __device__ bool has(int i) const { return own.row + 8 * i < rows && count > 0; }
};

/// Begins the copies of xhat. A thread reads what it copied itself: rows blockDim.x places apart.
template <class T>
__device__ void copy_saved(const WideBackward<typename T::Element>& a, const Place<T>& at, uint4* saved) {
    if (!a.dz || !a.saved) return;
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        const bool there = at.has(i);
        const auto* from = there ? a.saved.row(at.k, at.group, at.own.row + 8 * i) + at.layer_column : nullptr;
        uint4* to = saved + i * static_cast<int>(blockDim.x);
        if (!there || (a.whole_runs && at.count >= 8))
            copy16(shared_address(to), there ? from : a.saved.data, there);
        else
            *to = tile::fetch_piece<false>(from, 0, at.count);
    }
}

/// From dx to du, in place, with the sums of du and of du * xhat over the thread's rows.
template <class T>
__device__ void reverse_rows(const WideBackward<typename T::Element>& a, const Place<T>& at, Mask<T>& mask, const uint4* saved,
                             const ColumnTable<T::kColumns>& table, Sums<T::kTiles>& acc, float (&sum)[8], float (&dot)[8]) {
    using E = typename T::Element;
    const bool relu = a.dz && a.p.activation == Activation::relu, batch = a.dz && a.p.norm == Norm::batch_train;
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        const bool there = at.has(i);
        float v[8];
        take_row<T::kTiles>(acc, v);
        to_run(v);
        if (a.add_dx && there) {
            const E* before = a.dx.row(at.k, at.product_group, at.row0 + at.own.row + 8 * i) + at.column;
            const uint4 old = load_eight(before, at.count, a.whole_runs);
#pragma unroll
            for (int j = 0; j < 8; ++j) v[j] += value_in<E>(old, j);
        }
        mask.apply(v);
        // Read for each row: kept in registers, these values would cost a third of the warps.
        forget_memory();
        const uint4 eight = a.dz && a.saved ? saved[i * static_cast<int>(blockDim.x)] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j0 = 0; j0 < 8; j0 += 4) {
            float scale[4] = {1, 1, 1, 1}, shift[4] = {};
            if (batch) {
                load_run<4>(table.gamma + at.own.column + j0, scale);
                load_run<4>(table.beta + at.own.column + j0, shift);
            }
#pragma unroll
            for (int j = j0; j < j0 + 4; ++j) {
                const float u = scale[j - j0] * value_in<E>(eight, j) + shift[j - j0];
                v[j] = there ? v[j] * (!relu || u > 0 ? 1.0f : 0.0f) : 0;
                sum[j] += v[j];
                dot[j] += v[j] * value_in<E>(eight, j);
            }
        }
        put_row<T::kTiles>(acc, v);
    }
}

/// From du to dz, or dx as it is.
template <class T>
__device__ void write_rows(const WideBackward<typename T::Element>& a, const Place<T>& at, const uint4* saved,
                           const ColumnTable<T::kColumns>& table, Sums<T::kTiles>& acc) {
    using E = typename T::Element;
    const bool batch = a.dz && a.p.norm == Norm::batch_train;
    const Mat<E> target = a.dz ? a.dz : a.dx;
    E* out = target.row(at.k, at.group, at.row0 + at.own.row) + at.layer_column;
#pragma unroll T::kRolled ? 1 : 4
    for (int i = 0; i < 4; ++i) {
        if (at.own.row + 8 * i >= at.rows) break;
        float v[8];
        take_row<T::kTiles>(acc, v);
        if (batch) {
            forget_memory();
            const uint4 eight = saved[i * static_cast<int>(blockDim.x)];
#pragma unroll
            for (int j0 = 0; j0 < 8; j0 += 4) {
                float scale[4], mean[4], along[4];
                load_run<4>(table.scale + at.own.column + j0, scale);
                load_run<4>(table.sum + at.own.column + j0, mean);
                load_run<4>(table.dot + at.own.column + j0, along);
#pragma unroll
                for (int j = j0; j < j0 + 4; ++j)
                    v[j] = scale[j - j0] * v[j] - mean[j - j0] - value_in<E>(eight, j) * along[j - j0];
            }
        }
        std::uint32_t words[4];
        pack_run<E>(v, words);
        store_words<8>(out, words, at.count, a.whole_runs);
        out += 8 * target.stride_row;
    }
}

/// kBlocks that a multiprocessor holds at once: a third costs registers, whose values then go through memory.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kMostThreads, kBlocks)
    wide_backward_kernel(const __grid_constant__ WideBackward<typename T::Element> a) {
    extern __shared__ uint4 memory[];
    __shared__ ColumnTable<T::kColumns> table;
    if (!a.early) begin_kernel();
    const Place<T> at(a);
    const RightSummed<T> right{a.w.row(at.k, at.product_group, 0) + at.column0, a.w.stride_row, a.product_cols - at.column0,
                               a.summed};
    begin_right<T>(memory, a.stages, right);
    if (a.early) begin_kernel();
    uint4* saved = memory + a.ring + threadIdx.x;
    copy_saved<T>(a, at, saved);
    // Thread c is responsible for column c. Its values are asked for here and needed behind the first copies.
    float gamma = 0, beta = 0, factor = 0;
    const bool batch = a.dz && a.p.norm == Norm::batch_train;
    if (const int c = threadIdx.x; batch && c < T::kColumns && at.column0 + c < a.product_cols) {
        const int flat = at.product_group * a.product_cols + at.column0 + c;
        gamma = a.gamma.row(at.k, flat / a.cols, 0)[flat % a.cols];
        beta = a.beta.row(at.k, flat / a.cols, 0)[flat % a.cols];
        factor = a.inv_std.row(at.k, flat / a.cols, 0)[flat % a.cols];
    }
    const DropoutKey key = a.dz ? dropout_key({a.p.dropout, a.p.op_number}, a.state, at.k) : DropoutKey{};
    Sums<T::kTiles> acc = {};
    const Left<T> left{a.dz_above.row(at.k, at.product_group, at.row0), a.dz_above.stride_row, at.rows, a.summed, a.whole_left};
    Mask<T> mask;
    product<T>(acc, memory, a.stages, left, right, at.own, [&] {
        const std::uint64_t row = static_cast<std::uint64_t>(at.group) * a.rows + at.own.row;
        if (at.has(0)) mask.draw(key, row * a.cols + at.layer_column, std::uint64_t{8} * a.cols);
        factor *= gamma;
        if (const int c = threadIdx.x; c < T::kColumns) {
            table.gamma[c] = gamma;
            table.beta[c] = beta;
        }
    });
    float sum[8] = {}, dot[8] = {};
    reverse_rows<T>(a, at, mask, saved, table, acc, sum, dot);
    if (a.dz)
        finish_sums<T>(a, sum, dot, at.own, reinterpret_cast<float*>(memory), table, at.k, at.product_group, at.column0, factor);
    __syncthreads();
    if (at.count > 0) write_rows<T>(a, at, saved, table, acc);
}

template <class E>
KernelResult make_tiles(Context& c, const Bound& d, const Bound* b, const Tiling& tiling) {
    const Operand &dx = d[linear_dgrad::dx], &dz = d[linear_dgrad::dz];
    WideBackward<E> a{fused_backward<E>(c, &d, b, tiling.row_tile, tiling.row_tiles), kStages, aligned16(dx),
                      aligned16(dz) && dz.cols % 8 == 0, 0};
    if (b) {
        const Operand &out = (*b)[dense_backward::dz], &saved = (*b)[dense_backward::saved];
        a.whole_runs = aligned16(out) && (!a.add_dx || a.whole_runs) && (!saved.present() || aligned16(saved));
    }
    const dim3 grid(blocks_for(dx.cols, tiling.columns), dx.g, dx.k * tiling.row_tiles);
    const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
    const std::size_t kept = a.dz.data != nullptr && a.saved.data != nullptr ? std::size_t{64} * tiling.threads() : 0;
    const bool rolled = blocks <= c.multiprocessors, many = blocks > 2 * c.multiprocessors;
    const auto kernel = !tiling.whole_pieces   ? wide_backward_kernel<Tile<E, 4, 1, false>, 2>
                        : tiling.columns == 32 ? rolled ? wide_backward_kernel<Tile<E, 4, 1, true, true, true>, 2>
                                                        : wide_backward_kernel<Tile<E, 4, 1, true, false, true>, 2>
                        : rolled ? wide_backward_kernel<Tile<E, 4, 2, true, true, true>, 2>
                        : many                 ? wide_backward_kernel<Tile<E, 4, 2, true, false, true>, 3>
                                               : wide_backward_kernel<Tile<E, 4, 2, true, false, true>, 2>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    a.stages = rolled && tiling.ring_bytes(a.summed, kDeep) + kept <= c.shared_limit ? kDeep : kStages;
    const std::size_t ring = tiling.ring_bytes(a.summed, a.stages);
    a.ring = static_cast<int>(ring / 16);
    return make_launch(c, kernel, grid, dim3(tiling.threads()), ring + kept, a);
}

}  // namespace

bool has_wide_runs(const Bound& d, const Bound& b) {
    const int product_cols = d[linear_dgrad::dx].cols, cols = b[dense_backward::dz].cols;
    return product_cols == cols || (product_cols % 8 == 0 && cols % 8 == 0);
}

KernelResult make_wide_backward(Context& c, const Bound& d, const Bound* b, const Tiling& tiling) {
    return d[linear_dgrad::dx].dtype == tensor::DType::f16 ? make_tiles<f16>(c, d, b, tiling) : make_tiles<bf16>(c, d, b, tiling);
}

}  // namespace millrace::ops::cuda
