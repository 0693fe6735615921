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
/// The same in any form, of `count` queries from `first` on and from global memory: eight lanes have a row.
template <class T>
__device__ void find_deltas(const AttentionArgs<T>& a, const AttentionPlace& place, int first, int count, float* to) {
    const int lane = static_cast<int>(threadIdx.x) % 8, width = a.shape.width;
    for (int i = static_cast<int>(threadIdx.x) / 8; i < count; i += static_cast<int>(blockDim.x) / 8) {
        const T* out = a.out.row(place.k, 0, place.row + first + i) + place.column;
        const T* dout = a.dout.row(place.k, 0, place.row + first + i) + place.column;
        const int columns = first + i < place.filled ? width : 0;
        float sum = 0;
#pragma unroll 4
        for (int d = 8 * lane; d < columns; d += 64) {
            float x[8], y[8];
            spread<T>(a.whole ? *reinterpret_cast<const uint4*>(out + d) : gather_eight(out + d, width - d), x);
            spread<T>(a.whole ? *reinterpret_cast<const uint4*>(dout + d) : gather_eight(dout + d, width - d), y);
#pragma unroll
            for (int e = 0; e < 8; ++e) sum = fmaf(x[e], y[e], sum);
        }
#pragma unroll
        for (int distance = 4; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane == 0) to[i] = sum;
    }
}

/// Fragments of the left sides of kParts products in any form.
template <int kParts>
using LeftSides = std::uint32_t[kParts][AnyForm::kTiles][4];

/// In any form the warps of the same own rows share the weights of chunks [begin, end) of a tile's rows: find(i, left) finds
/// fragments of the 16 rows from i on, add(i, left) takes them.
template <int kParts, class Find, class Add>
__device__ void share_weights(const AnyForm& form, uint4* shared, int begin, int end, Find find, Add add) {
    shared += threadIdx.x % 32;
    LeftSides<kParts> left;
    for (int i = begin + 16 * (form.slice / AnyForm::kWidth); i < end; i += 16 * form.slices()) {
        find(i, left);
#pragma unroll
        for (int p = 0; p < kParts; ++p)
            shared[2 * kParts * i + 32 * p] = make_uint4(left[p][0][0], left[p][0][1], left[p][0][2], left[p][0][3]);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = begin; i < end; i += 16) {
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
            const uint4 four = shared[2 * kParts * i + 32 * p];
            left[p][0][0] = four.x;
            left[p][0][1] = four.y;
            left[p][0][2] = four.z;
            left[p][0][3] = four.w;
        }
        add(i, left);
    }
}

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
    /// Gradients of the scores of keys [at, at + kChunk) of the sequence.
    template <int kChunk>
    __device__ void weigh(const Form& form, const AttentionShape& shape, int filled, int at, const T* keys, const T* values,
                          Sums<kTiles, kChunk>& gradients) const {
        const float factor = shape.scale * kLog2E;
        Sums<kTiles, kChunk> weights;
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
    }
    template <int kChunk>
    __device__ void take(const Form& form, const AttentionShape& shape, int filled, int at, const T* keys, const T* values) {
        if (at >= some_see) return;
        Sums<kTiles, kChunk> gradients;
        weigh<kChunk>(form, shape, filled, at, keys, values, gradients);
#pragma unroll
        for (int n = 0; n < kChunk / 8; n += 2) multiply_along<kChunk>(form, sums, gradients, n, keys);
    }
    /// Keys of a tile from `at` on.
    template <int kChunk>
    __device__ void take_tile(const Form& form, const AttentionShape& shape, int filled, int at, const T* keys, const T* values,
                              uint4* shared) {
        if constexpr (Form::kAny) {
            const auto find = [&](int i, LeftSides<1>& left) {
                Sums<kTiles, kChunk> gradients;
                weigh<kChunk>(form, shape, filled, at + i, keys + i * form.stride(), values + i * form.stride(), gradients);
                pack_left<T>(left[0], gradients, 0);
            };
            share_weights<1>(form, shared, 0, min(form.tile(), some_see - at), find, [&](int i, const LeftSides<1>& left) {
                multiply_along(form, sums, left[0], keys + i * form.stride());
            });
        } else {
#pragma unroll 1
            for (int i = 0; i < form.tile(); i += kChunk)
                take<kChunk>(form, shape, filled, at + i, keys + i * form.stride(), values + i * form.stride());
        }
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
    /// Weights of queries [at, at + kChunk) of the sequence and gradients of their scores; what is not filled is zero in all
    /// four.
    template <int kChunk>
    __device__ void weigh(const Form& form, const AttentionShape& shape, int at, const T* queries, const T* douts,
                          const float* logsumexp, const float* deltas, Sums<kTiles, kChunk>& weights,
                          Sums<kTiles, kChunk>& gradients) const {
        const float factor = shape.scale * kLog2E;
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
    }
    template <int kChunk>
    __device__ void take(const Form& form, const AttentionShape& shape, int at, const T* queries, const T* douts,
                         const float* logsumexp, const float* deltas) {
        if (at + kChunk <= shape.first_query(own)) return;
        Sums<kTiles, kChunk> weights, gradients;
        weigh<kChunk>(form, shape, at, queries, douts, logsumexp, deltas, weights, gradients);
#pragma unroll
        for (int n = 0; n < kChunk / 8; n += 2) {
            multiply_along<kChunk>(form, dvalue, weights, n, douts);
            multiply_along<kChunk>(form, dkey, gradients, n, queries);
        }
    }
    /// Queries of a tile from `at` on, with their `numbers`: logsumexp and delta.
    template <int kChunk>
    __device__ void take_tile(const Form& form, const AttentionShape& shape, int filled, int at, const T* queries, const T* douts,
                              const float* numbers, uint4* shared) {
        const float* deltas = numbers + form.tile();
        if constexpr (Form::kAny) {
            const auto find = [&](int i, LeftSides<2>& left) {
                Sums<kTiles, kChunk> weights, gradients;
                weigh<kChunk>(form, shape, at + i, queries + i * form.stride(), douts + i * form.stride(), numbers + i,
                              deltas + i, weights, gradients);
                pack_left<T>(left[0], weights, 0);
                pack_left<T>(left[1], gradients, 0);
            };
            const int begin = max(0, shape.first_query(own) - at) / 16 * 16;
            share_weights<2>(form, shared, begin, min(form.tile(), filled - at), find, [&](int i, const LeftSides<2>& left) {
                multiply_along(form, dvalue, left[0], douts + i * form.stride());
                multiply_along(form, dkey, left[1], queries + i * form.stride());
            });
        } else {
#pragma unroll 1
            for (int i = 0; i < form.tile(); i += kChunk)
                take<kChunk>(form, shape, at + i, queries + i * form.stride(), douts + i * form.stride(), numbers + i,
                             deltas + i);
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
