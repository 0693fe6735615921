#pragma once
// The backward pass of attention on tensor cores, kChunk streamed rows at a time. Scores and weights are found again from the
// logsumexp. Every sum has one owner and a fixed order, so queries' gradients and keys' and values' find them separately.

#include "ops/attention/flash.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {

/// delta = dout . out of a block's queries. `fetch` begins while `dout` is still on its way to shared memory.
template <class T, class Form>
struct Deltas {
    static constexpr int kVectors = Form::kWidth / 8, kStep = kFlashThreads / kVectors;
    uint4 out[Form::own() / kStep];

    /// `from`: the head's row of the first query; rows from `rows` on count as zero.
    __device__ void fetch(const T* from, int stride, int rows, int width) {
        const int row = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
#pragma unroll
        for (int i = 0; i < Form::own(); i += kStep) {
            out[i / kStep] = make_uint4(0, 0, 0, 0);
            if (row + i >= rows || column >= width) continue;
            const T* at = from + (row + i) * stride + column;
            out[i / kStep] = Form::kInFull ? *reinterpret_cast<const uint4*>(at) : gather_eight(at, width - column);
        }
    }
    /// dout as stage_rows laid it; `to` [own rows], by all threads.
    __device__ void find(const Form& form, const T* dout, float* to) const {
        const int row = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
#pragma unroll
        for (int i = 0; i < Form::own(); i += kStep) {
            float a[8], b[8], sum = 0;
            spread<T>(out[i / kStep], a);
            spread<T>(*reinterpret_cast<const uint4*>(dout + (row + i) * form.stride() + column), b);
#pragma unroll
            for (int d = 0; d < 8; ++d) sum = fmaf(a[d], b[d], sum);
#pragma unroll
            for (int d = kVectors / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
            if (column == 0) to[row + i] = sum;
        }
    }
};
/// In any form two lanes have a row.
template <class T>
struct Deltas<T, AnyForm> {
    const T* out;
    int width;
    bool there;
    __device__ void fetch(const T* from, int stride, int rows, int columns) {
        const int row = static_cast<int>(threadIdx.x) / 2;
        out = from + row * stride;
        width = columns;
        there = row < rows;
    }
    __device__ void find(const AnyForm& form, const T* dout, float* to) const {
        const int row = static_cast<int>(threadIdx.x) / 2, odd = static_cast<int>(threadIdx.x) % 2;
        float sum = 0;
#pragma unroll 8
        for (int d = odd; d < width && there; d += 2) sum = fmaf(load(dout + row * form.stride() + d), load(out + d), sum);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (odd == 0) to[row] = sum;
    }
};

/// A warp's queries: their gradients grow with the keys and values that stream by.
template <class T, class Form>
struct QueryGradient {
    static constexpr int kTiles = Form::kTiles, kOwn = 16 * kTiles;
    OwnRows<T, Form> query, dout;
    Sums<kTiles, Form::kWidth> sums;
    float logsumexp[kTiles][2], delta[kTiles][2];  ///< in base 2
    int own, all_see, some_see;                    ///< first query; keys seen by all, by some

    /// Of the queries from `first` on, whose rows are `queries` and `douts`; their logsumexp is level(row), deltas[row] their
    /// delta.
    template <class Level>
    __device__ void begin(const Form& form, const AttentionShape& shape, int filled, int first, const T* queries, const T* douts,
                          Level level, const float* deltas) {
        own = first;
        all_see = shape.seen(own, filled);
        some_see = own < filled ? shape.seen(own + kOwn - 1, filled) : 0;
        query.load(form, queries);
        dout.load(form, douts);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row_of(m, 2 * half);
                logsumexp[m][half] = own + row < filled ? kLog2E * level(own + row) : 0;
                delta[m][half] = deltas[row];
            }
        clear(sums);
    }
    /// Keys [at, at + kChunk) of the sequence.
    template <int kChunk>
    __device__ void take(const Form& form, const AttentionShape& shape, int filled, int at, const T* keys, const T* values) {
        if (at >= some_see) return;
        const float factor = shape.scale * kLog2E;
        Sums<kTiles, kChunk> weights, gradients;
        multiply_across<kChunk>(form, weights, query, keys);
        multiply_across<kChunk>(form, gradients, dout, values);
        const bool masked = at + kChunk > all_see;
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int n = 0; n < kChunk / 8; ++n) {
                    float& g = gradients[m][n][i];
                    g = exp2_fast(fmaf(weights[m][n][i], factor, -logsumexp[m][i / 2])) * (g - delta[m][i / 2]);
                    if (masked && at + column_of(n, i) >= shape.seen(own + row_of(m, i), filled)) g = 0;
                }
#pragma unroll
        for (int n = 0; n < kChunk / 8; n += 2) multiply_along<kChunk>(form, sums, gradients, n, keys);
    }
    /// Writes them through the rows of `staging`.
    __device__ void store(const Form& form, const AttentionArgs<T>& a, const AttentionPlace& place, T* staging) const {
        RowFactors<kTiles> factor;
        set_all<kTiles>(factor, a.shape.scale);
        store_rows(form, sums, factor, staging, part_of(a.dqkv, a.shape, place, 0) + own * a.dqkv.stride_row, a.dqkv.stride_row,
                   place.filled - own, a.shape.positions - own, a.shape.width);
    }
};

/// A warp's keys and values: their gradients grow with the queries that stream by.
template <class T, class Form>
struct KeyGradient {
    static constexpr int kTiles = Form::kTiles, kOwn = 16 * kTiles;
    OwnRows<T, Form> key, value;
    Sums<kTiles, Form::kWidth> dkey, dvalue;
    int own;  ///< first key

    __device__ void begin(const Form& form, int first, const T* keys, const T* values) {
        own = first;
        key.load(form, keys);
        value.load(form, values);
        clear(dkey);
        clear(dvalue);
    }
    /// Queries [at, at + kChunk) of the sequence; what is not filled is zero in all four.
    template <int kChunk>
    __device__ void take(const Form& form, const AttentionShape& shape, int at, const T* queries, const T* douts,
                         const float* logsumexp, const float* deltas) {
        if (at + kChunk <= shape.first_query(own)) return;
        const float factor = shape.scale * kLog2E;
        Sums<kTiles, kChunk> weights, gradients;
        multiply_across<kChunk>(form, weights, key, queries);
        multiply_across<kChunk>(form, gradients, value, douts);
        const bool masked = at < shape.first_query(own + kOwn - 1);
#pragma unroll
        for (int n = 0; n < kChunk / 8; ++n) {
            const float2 level = *reinterpret_cast<const float2*>(logsumexp + column_of(n, 0));
            const float2 delta = *reinterpret_cast<const float2*>(deltas + column_of(n, 0));
#pragma unroll
            for (int m = 0; m < kTiles; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float &w = weights[m][n][i], &g = gradients[m][n][i];
                    w = exp2_fast(fmaf(w, factor, -kLog2E * (i % 2 == 0 ? level.x : level.y)));
                    g = w * (g - (i % 2 == 0 ? delta.x : delta.y));
                    if (masked && at + column_of(n, i) < shape.first_query(own + row_of(m, i))) w = g = 0;
                }
        }
#pragma unroll
        for (int n = 0; n < kChunk / 8; n += 2) {
            multiply_along<kChunk>(form, dvalue, weights, n, douts);
            multiply_along<kChunk>(form, dkey, gradients, n, queries);
        }
    }
    __device__ void store(const Form& form, const AttentionArgs<T>& a, const AttentionPlace& place, T* keys, T* values) const {
        const std::int64_t stride = a.dqkv.stride_row;
        const int filled = place.filled - own, rows = a.shape.positions - own;
        RowFactors<kTiles> factor, one;
        set_all<kTiles>(factor, a.shape.scale);
        set_all<kTiles>(one, 1);
        store_rows(form, dkey, factor, keys, part_of(a.dqkv, a.shape, place, 1) + own * stride, stride, filled, rows,
                   a.shape.width);
        store_rows(form, dvalue, one, values, part_of(a.dqkv, a.shape, place, 2) + own * stride, stride, filled, rows,
                   a.shape.width);
    }
};

}  // namespace millrace::ops::cuda
