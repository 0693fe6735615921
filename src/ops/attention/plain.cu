// Attention without tensor cores (plain.cuh).

#include "ops/attention/plain.cuh"

namespace millrace::ops::cuda {
namespace {

template <class T, class Form>
__global__ void __launch_bounds__(kPlainThreads) plain_forward_kernel(AttentionArgs<T> a, int slab) {
    extern __shared__ uint4 memory[];
    begin_kernel();
    const PlainWork<T, Form> w(a, slab, blockIdx.x);
    float *queries = reinterpret_cast<float*>(memory), *keys = queries + Form::kRows * w.stride();
    float *values = keys + Form::kTile * w.stride(), *square = values + Form::kTile * w.stride();
    const int filled = w.place.filled,
              limit = w.first < filled ? a.shape.seen(min(w.first + Form::kRows, filled) - 1, filled) : 0;
    const int warp_limit = w.warp_first() < filled ? a.shape.seen(w.warp_last(), filled) : 0;
    float sums[Form::kOwn][Form::kColumns / 8] = {}, top[Form::kOwn], sum[Form::kOwn] = {};
#pragma unroll
    for (int i = 0; i < Form::kOwn; ++i) top[i] = -INFINITY;
    const T* rows = part_of(a.qkv, a.shape, w.place, 0);
    const std::int64_t stride_row = a.qkv.stride_row, across = a.shape.heads * a.shape.width;
    for (int at = 0; at < limit; at += Form::kTile) {
        float scores[Form::kOwn][Form::kStreamed] = {};
        for (int n = 0; n < w.slabs(); ++n) {
            const int column = n * slab;
            __syncthreads();
            if (at == 0 || w.slabs() > 1) w.stage(queries, rows, stride_row, w.first, Form::kRows, column);
            w.stage(keys, rows + across, stride_row, at, Form::kTile, column);
            if (column == 0) w.stage(values, rows + 2 * across, stride_row, at, Form::kTile, w.slice_slab());
            w.await_rows();
            if (at < warp_limit) w.across(scores, queries, keys, column);
        }
        if (at >= warp_limit) continue;
#pragma unroll
        for (int i = 0; i < Form::kOwn; ++i) {
            const int row = w.own + 4 * i, seen = row < filled ? a.shape.seen(row, filled) - at : 0;
            float most = top[i];
#pragma unroll
            for (int j = 0; j < Form::kStreamed; ++j) {
                scores[i][j] *= a.shape.scale;
                if (w.x + 8 * j < seen) most = fmaxf(most, scores[i][j]);
            }
            most = lanes_max(most);
            const float shrink = seen > 0 ? expf(top[i] - most) : 1;
            top[i] = most;
            sum[i] *= shrink;
#pragma unroll
            for (int j = 0; j < Form::kStreamed; ++j) {
                scores[i][j] = w.x + 8 * j < seen ? expf(scores[i][j] - most) : 0;
                sum[i] += scores[i][j];
            }
#pragma unroll
            for (int d = 0; d < Form::kColumns / 8; ++d) sums[i][d] *= shrink;
        }
        w.along(sums, scores, square, values, 0, warp_limit - at);
    }
#pragma unroll
    for (int i = 0; i < Form::kOwn; ++i) {
        const int row = w.own + 4 * i;
        const float all = lanes_sum(sum[i]);
        w.store_row(sums[i], i, row < filled ? 1 / all : 0, a.out.row(w.place.k, 0, w.place.row) + w.place.column,
                    a.out.stride_row);
        if (w.x == 0 && w.slice == 0 && row < a.shape.positions)
            a.logsumexp.row(w.place.k, 0, w.place.row + row)[w.place.head] = row < filled ? top[i] + logf(all) : 0;
    }
}

/// Gradients of keys and values, which stream queries, or of queries, which stream keys and values.
template <bool kOfKeys, class T, class Form>
__device__ void plain_gradients(const AttentionArgs<T>& a, int slab, int block) {
    extern __shared__ uint4 memory[];
    const PlainWork<T, Form> w(a, slab, block);
    constexpr int kQueries = kOfKeys ? Form::kTile : Form::kRows;
    float* owned[2] = {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory) + Form::kRows * w.stride()};
    float* streamed[2] = {owned[1] + Form::kRows * w.stride(), owned[1] + (Form::kRows + Form::kTile) * w.stride()};
    float *square = streamed[1] + Form::kTile * w.stride(), *logsumexps = square + Form::kRows * Form::kPitch;
    float* deltas = logsumexps + kQueries;
    const int filled = w.place.filled, width = a.shape.width;
    const T *qkv = part_of(a.qkv, a.shape, w.place, 0), *douts = a.dout.row(w.place.k, 0, w.place.row) + w.place.column;
    const std::int64_t across = a.shape.heads * width;
    const auto stage_queries = [&](float* const(&to)[2], int at, int count, int column) {
        w.stage(to[0], qkv, a.qkv.stride_row, at, count, column);
        w.stage(to[1], douts, a.dout.stride_row, at, count, column);
        if (column == 0) w.template find_deltas<kQueries>(at, logsumexps, deltas);
    };
    const auto stage_keys = [&](float* const(&to)[2], int at, int count, int column) {
        w.stage(to[0], qkv + across, a.qkv.stride_row, at, count, column);
        w.stage(to[1], qkv + 2 * across, a.qkv.stride_row, at, count, column);
    };
    const auto stage_owned = [&](int column) {
        kOfKeys ? stage_keys(owned, w.first, Form::kRows, column) : stage_queries(owned, w.first, Form::kRows, column);
    };
    const auto stage_streamed = [&](int at, int column) {
        kOfKeys ? stage_queries(streamed, at, Form::kTile, column) : stage_keys(streamed, at, Form::kTile, column);
    };
    // Streamed rows that some own row of the block, and of the warp, needs.
    int begin = 0, end = 0, warp_begin = 0, warp_end = 0;
    if (w.first < filled) {
        begin = kOfKeys ? a.shape.first_query(w.first) / Form::kTile * Form::kTile : 0;
        end = kOfKeys ? filled : a.shape.seen(min(w.first + Form::kRows, filled) - 1, filled);
    }
    if (w.warp_first() < filled) {
        warp_begin = kOfKeys ? a.shape.first_query(w.warp_first()) : 0;
        warp_end = kOfKeys ? filled : a.shape.seen(w.warp_last(), filled);
    }
    float sums[Form::kOwn][Form::kColumns / 8] = {}, value_sums[Form::kOwn][Form::kColumns / 8] = {};
    for (int at = begin; at < end; at += Form::kTile) {
        const bool works = at < warp_end && at + Form::kTile > warp_begin;
        float weights[Form::kOwn][Form::kStreamed] = {}, gradients[Form::kOwn][Form::kStreamed] = {};
        for (int n = 0; n < w.slabs(); ++n) {
            const int column = n * slab;
            __syncthreads();
            if (at == begin || w.slabs() > 1) stage_owned(column);
            stage_streamed(at, column);
            w.await_rows();
            if (!works) continue;
            w.across(weights, owned[0], streamed[0], column);
            w.across(gradients, owned[1], streamed[1], column);
        }
        if (w.slice_slab() != (w.slabs() - 1) * slab) {
            __syncthreads();
            stage_streamed(at, w.slice_slab());
            w.await_rows();
        }
        if (!works) continue;
#pragma unroll
        for (int i = 0; i < Form::kOwn; ++i)
#pragma unroll
            for (int j = 0; j < Form::kStreamed; ++j) {
                const int row = w.own + 4 * i, other = w.x + 8 * j, query = kOfKeys ? other : w.local + 4 * i;
                const int key_at = kOfKeys ? row : at + other, query_at = kOfKeys ? at + other : row;
                const bool sees = query_at < filled && key_at < a.shape.seen(query_at, filled);
                weights[i][j] = sees ? expf(weights[i][j] * a.shape.scale - logsumexps[query]) : 0;
                gradients[i][j] = sees ? weights[i][j] * (gradients[i][j] - deltas[query]) : 0;
            }
        w.along(sums, gradients, square, streamed[0], warp_begin - at, warp_end - at);
        if constexpr (kOfKeys) w.along(value_sums, weights, square, streamed[1], warp_begin - at, warp_end - at);
    }
    T* to = part_of(a.dqkv, a.shape, w.place, 0);
#pragma unroll
    for (int i = 0; i < Form::kOwn; ++i) {
        w.store_row(sums[i], i, a.shape.scale, to + (kOfKeys ? across : 0), a.dqkv.stride_row);
        if constexpr (kOfKeys) w.store_row(value_sums[i], i, 1, to + 2 * across, a.dqkv.stride_row);
    }
}

/// Both gradients in one launch, those with more to do first.
template <class T, class Form>
__global__ void __launch_bounds__(kPlainThreads) plain_backward_kernel(AttentionArgs<T> a, int slab) {
    begin_kernel();
    const int half = gridDim.x / 2, block = blockIdx.x;
    if (block < half)
        plain_gradients<true, T, Form>(a, slab, block);
    else
        plain_gradients<false, T, Form>(a, slab, block - half);
}

template <bool kForward, class T, class Form>
KernelResult make_form(Context& c, const AttentionArgs<T>& a, Form) {
    const auto kernel = [] {
        if constexpr (kForward)
            return plain_forward_kernel<T, Form>;
        else
            return plain_backward_kernel<T, Form>;
    }();
    constexpr int kSides = kForward ? 1 : 2;
    const int slab = Form::slab(a.shape.width, kSides, c.shared_limit);
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, Form::blocks(a.shape) * kSides), dim3(kPlainThreads),
                       Form::bytes(slab, kSides), a, slab);
}

}  // namespace

template <bool kForward, class Real>
KernelResult make_plain_attention(Context& c, const AttentionArgs<Real>& a) {
    // Backward one launch does two things, so that large tiles still leave a block for every multiprocessor.
    constexpr int kOwn = kForward ? 2 : 4;
    const auto takes = [&]<class Form>(Form) {
        return a.shape.width <= Form::kColumns && Form::bytes(a.shape.width, kForward ? 1 : 2) <= c.shared_limit;
    };
    if constexpr (!std::is_same_v<Real, bf16>) {  // whose usual heads have tensor cores
        if (const PlainForm<32, kOwn, 8> form; takes(form)) return make_form<kForward>(c, a, form);
        if (const PlainForm<64, kOwn, 8> form; takes(form)) return make_form<kForward>(c, a, form);
        if (const PlainForm<128, 4, 4> form; takes(form)) return make_form<kForward>(c, a, form);
    }
    return make_form<kForward>(c, a, PlainForm<128, 1, 4, true>{});
}

template KernelResult make_plain_attention<true>(Context&, const AttentionArgs<float>&);
template KernelResult make_plain_attention<true>(Context&, const AttentionArgs<bf16>&);
template KernelResult make_plain_attention<true>(Context&, const AttentionArgs<f16>&);
template KernelResult make_plain_attention<false>(Context&, const AttentionArgs<float>&);
template KernelResult make_plain_attention<false>(Context&, const AttentionArgs<bf16>&);
template KernelResult make_plain_attention<false>(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
