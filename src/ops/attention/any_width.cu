// Attention on tensor cores for heads of any width and alignment.

#include "ops/attention/any_width.cuh"

namespace millrace::ops::cuda {
namespace any_width {
namespace {

constexpr int kKeys = 32, kChunk = 16;  ///< streamed rows that a warp takes at a time, forward and back

/// A warp's softmax along the keys: when a larger score comes up, what was summed so far is scaled down.
struct Softmax {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};  ///< of the thread's rows; the sum is of this thread's columns alone

    /// Scores become weights relative to the largest so far; `factor` 1 / sqrt(width) in base 2.
    template <int kSums, int kOut>
    __device__ void weigh(float (&scores)[1][kSums][4], float (&out)[1][kOut][4], float factor) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = top[half];
#pragma unroll
            for (int n = 0; n < kSums; ++n) most = fmaxf(most, fmaxf(scores[0][n][2 * half], scores[0][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float shrink = exp2_fast((top[half] - most) * factor), shift = most * factor;
            top[half] = most;
            sum[half] *= shrink;
#pragma unroll
            for (int n = 0; n < kSums; ++n)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    scores[0][n][i] = exp2_fast(fmaf(scores[0][n][i], factor, -shift));
                    sum[half] += scores[0][n][i];
                }
#pragma unroll
            for (int n = 0; n < kOut; ++n) {
                out[0][n][2 * half] *= shrink;
                out[0][n][2 * half + 1] *= shrink;
            }
        }
    }
};

template <class T>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(const __grid_constant__ AttentionArgs<T> a, Cover cover) {
    extern __shared__ uint4 memory[];
    T *queries = reinterpret_cast<T*>(memory), *keys = queries + cover.own * cover.stride();
    T* values = keys + cover.tile * cover.stride();
    begin_kernel();
    const AttentionShape& shape = a.shape;
    const Block b(a, cover, true);
    const int filled = b.place.filled, across = shape.heads * shape.width;
    const T *rows = part_of(a.qkv, shape, b.place, 0), *own_rows = queries + (b.own - b.first) * cover.stride();
    const std::int64_t stride = a.qkv.stride_row;
    SliceSums<T> out;
    Softmax softmax;
    if (b.seen > 0) stage(a, cover, rows + b.first * stride, stride, filled - b.first, cover.own, queries);
    for (int at = 0; at < b.seen; at += cover.tile) {
        __syncthreads();
        stage(a, cover, rows + at * stride + across, stride, filled - at, cover.tile, keys);
        stage(a, cover, rows + at * stride + 2 * across, stride, filled - at, cover.tile, values);
        await_rows();
        for (int i = 0; i < cover.tile && at + i < b.own_seen; i += kKeys) {
            float scores[1][kKeys / 8][4];
            multiply_across<T, kKeys>(scores, own_rows, keys + i * cover.stride(), cover);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int seen = shape.seen(b.own + row_of(0, e), filled) - at - i;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
                    if (column_of(n, e) >= seen) scores[0][n][e] = -INFINITY;
            }
            softmax.weigh(scores, out.v, shape.scale * kLog2E);
#pragma unroll
            for (int n = 0; n < kKeys / 16; ++n) out.add(scores, 2 * n, values + (i + 16 * n) * cover.stride(), cover, b.slice);
        }
    }
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float all = softmax.sum[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        share[half] = 1 / all;
        const int row = b.own + row_of(0, 2 * half);
        if (threadIdx.x % 4 == 0 && b.slice == 0 && row < shape.positions)
            a.logsumexp.row(b.place.k, 0, b.place.row + row)[b.place.head] =
                row < filled ? fmaf(softmax.top[half], shape.scale, log2f(all) * kLn2) : 0;
    }
    out.store(a.out.row(b.place.k, 0, b.place.row) + b.place.column, a.out.stride_row, b.own, filled, shape, cover, b.slice,
              share);
}

/// delta = dout . out of a warp's 16 rows, the same in every lane of a row's; slice 0 leaves it to the other kernel.
template <class T>
__device__ void find_deltas(const AttentionArgs<T>& a, const Block& b, float* deltas) {
    const int lane = threadIdx.x % 32, row = b.own + lane / 2;
    float sum = 0;
    if (row < b.place.filled) {
        const T* dout = a.dout.row(b.place.k, 0, b.place.row + row) + b.place.column;
        const T* out = a.out.row(b.place.k, 0, b.place.row + row) + b.place.column;
#pragma unroll 8
        for (int d = lane % 2; d < a.shape.width; d += 2) sum = fmaf(load(dout + d), load(out + d), sum);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane % 2 == 0) {
        deltas[lane / 2] = sum;
        if (b.slice == 0 && row < b.place.filled) a.delta.row(b.place.k, 0, b.place.row + row)[b.place.head] = sum;
    }
    __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) queries_kernel(const __grid_constant__ AttentionArgs<T> a, Cover cover) {
    extern __shared__ uint4 memory[];
    T *queries = reinterpret_cast<T*>(memory), *douts = queries + cover.own * cover.stride();
    T *keys = douts + cover.own * cover.stride(), *values = keys + cover.tile * cover.stride();
    float* deltas = reinterpret_cast<float*>(values + cover.tile * cover.stride());
    begin_kernel();
    const AttentionShape& shape = a.shape;
    const Block b(a, cover, true);
    const int filled = b.place.filled, across = shape.heads * shape.width, mine = b.own - b.first;
    const T *rows = part_of(a.qkv, shape, b.place, 0), *dout_rows = a.dout.row(b.place.k, 0, b.place.row) + b.place.column;
    const std::int64_t stride = a.qkv.stride_row;
    stage(a, cover, rows + b.first * stride, stride, filled - b.first, cover.own, queries);
    stage(a, cover, dout_rows + b.first * a.dout.stride_row, a.dout.stride_row, filled - b.first, cover.own, douts);
    find_deltas(a, b, deltas + mine);
    float logsumexp[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = b.own + row_of(0, 2 * half);
        logsumexp[half] = row < filled ? kLog2E * a.logsumexp.row(b.place.k, 0, b.place.row + row)[b.place.head] : 0;
        delta[half] = deltas[mine + row_of(0, 2 * half)];
    }
    SliceSums<T> sums;
    for (int at = 0; at < b.seen; at += cover.tile) {
        __syncthreads();
        stage(a, cover, rows + at * stride + across, stride, filled - at, cover.tile, keys);
        stage(a, cover, rows + at * stride + 2 * across, stride, filled - at, cover.tile, values);
        await_rows();
        for (int i = 0; i < cover.tile && at + i < b.own_seen; i += kChunk) {
            float weights[1][kChunk / 8][4], gradients[1][kChunk / 8][4];
            multiply_across<T, kChunk>(weights, queries + mine * cover.stride(), keys + i * cover.stride(), cover);
            multiply_across<T, kChunk>(gradients, douts + mine * cover.stride(), values + i * cover.stride(), cover);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int seen = shape.seen(b.own + row_of(0, e), filled) - at - i;
#pragma unroll
                for (int n = 0; n < kChunk / 8; ++n) {
                    const float w = exp2_fast(fmaf(weights[0][n][e], shape.scale * kLog2E, -logsumexp[e / 2]));
                    gradients[0][n][e] = column_of(n, e) < seen ? w * (gradients[0][n][e] - delta[e / 2]) : 0;
                }
            }
            sums.add(gradients, 0, keys + i * cover.stride(), cover, b.slice);
        }
    }
    const float factor[2] = {shape.scale, shape.scale};
    sums.store(part_of(a.dqkv, shape, b.place, 0), a.dqkv.stride_row, b.own, filled, shape, cover, b.slice, factor);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) keys_kernel(const __grid_constant__ AttentionArgs<T> a, Cover cover) {
    extern __shared__ uint4 memory[];
    T *keys = reinterpret_cast<T*>(memory), *values = keys + cover.own * cover.stride();
    T *queries = values + cover.own * cover.stride(), *douts = queries + cover.tile * cover.stride();
    float *logsumexps = reinterpret_cast<float*>(douts + cover.tile * cover.stride()), *deltas = logsumexps + cover.tile;
    begin_kernel();
    const AttentionShape& shape = a.shape;
    const Block b(a, cover, false);
    const int filled = b.place.filled, across = shape.heads * shape.width, mine = b.own - b.first;
    const T *rows = part_of(a.qkv, shape, b.place, 0), *dout_rows = a.dout.row(b.place.k, 0, b.place.row) + b.place.column;
    const std::int64_t stride = a.qkv.stride_row;
    const int begin = shape.first_query(b.first) / cover.tile * cover.tile, end = b.first < filled ? filled : begin;
    stage(a, cover, rows + b.first * stride + across, stride, filled - b.first, cover.own, keys);
    stage(a, cover, rows + b.first * stride + 2 * across, stride, filled - b.first, cover.own, values);
    SliceSums<T> dkey, dvalue;
    for (int at = begin; at < end; at += cover.tile) {
        __syncthreads();
        stage(a, cover, rows + at * stride, stride, filled - at, cover.tile, queries);
        stage(a, cover, dout_rows + at * a.dout.stride_row, a.dout.stride_row, filled - at, cover.tile, douts);
        for (int i = threadIdx.x; i < cover.tile; i += blockDim.x) {
            const bool there = at + i < filled;
            logsumexps[i] = there ? kLog2E * a.logsumexp.row(b.place.k, 0, b.place.row + at + i)[b.place.head] : 0;
            deltas[i] = there ? a.delta.row(b.place.k, 0, b.place.row + at + i)[b.place.head] : 0;
        }
        await_rows();
        for (int i = 0; i < cover.tile && at + i < end; i += kChunk) {
            if (b.own >= filled || at + i + kChunk <= shape.first_query(b.own)) continue;
            float weights[1][kChunk / 8][4], gradients[1][kChunk / 8][4];
            multiply_across<T, kChunk>(weights, keys + mine * cover.stride(), queries + i * cover.stride(), cover);
            multiply_across<T, kChunk>(gradients, values + mine * cover.stride(), douts + i * cover.stride(), cover);
#pragma unroll
            for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int query = i + column_of(n, e);
                    const bool sees = at + query >= shape.first_query(b.own + row_of(0, e));
                    float &w = weights[0][n][e], &g = gradients[0][n][e];
                    w = sees ? exp2_fast(fmaf(w, shape.scale * kLog2E, -logsumexps[query])) : 0;
                    g = sees ? w * (g - deltas[query]) : 0;
                }
            dvalue.add(weights, 0, douts + i * cover.stride(), cover, b.slice);
            dkey.add(gradients, 0, queries + i * cover.stride(), cover, b.slice);
        }
    }
    const float factor[2] = {shape.scale, shape.scale}, one[2] = {1, 1};
    dkey.store(part_of(a.dqkv, shape, b.place, 1), a.dqkv.stride_row, b.own, filled, shape, cover, b.slice, factor);
    dvalue.store(part_of(a.dqkv, shape, b.place, 2), a.dqkv.stride_row, b.own, filled, shape, cover, b.slice, one);
}

}  // namespace
}  // namespace any_width

template <class T>
KernelResult make_any_width_forward(Context& c, const AttentionArgs<T>& a, int piece) {
    const any_width::Cover cover = any_width::cover_of(c, a.shape.width, piece, 1, any_width::kKeys);
    const auto kernel = any_width::forward_kernel<T>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, any_width::grid_of(a, cover), dim3(2 * cover.own), cover.bytes(1), a, cover);
}

template <class T>
KernelResult make_any_width_backward(Context& c, const AttentionArgs<T>& a, int piece) {
    const any_width::Cover cover = any_width::cover_of(c, a.shape.width, piece, 2, any_width::kChunk);
    const auto queries = any_width::queries_kernel<T>, keys = any_width::keys_kernel<T>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(queries)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(keys)));
    return make_kernel([=, stream = c.stream] {
        const dim3 grid = any_width::grid_of(a, cover), block(2 * cover.own);
        launch(queries, grid, block, cover.bytes(2), stream, a, cover);
        launch(keys, grid, block, cover.bytes(2), stream, a, cover);
    });
}

bool takes_any_width(const Context& c, int width) {
    constexpr std::size_t kOlder = 64 * 1024;  // devices with so little shared memory lack the instructions
    return c.shared_limit > kOlder && any_width::cover_of(c, width, 1, 2, any_width::kChunk).own > 0 &&
           any_width::cover_of(c, width, 1, 1, any_width::kKeys).own > 0;
}

template KernelResult make_any_width_forward(Context&, const AttentionArgs<bf16>&, int);
template KernelResult make_any_width_forward(Context&, const AttentionArgs<f16>&, int);
template KernelResult make_any_width_backward(Context&, const AttentionArgs<bf16>&, int);
template KernelResult make_any_width_backward(Context&, const AttentionArgs<f16>&, int);

}  // namespace millrace::ops::cuda
