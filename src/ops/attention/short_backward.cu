// Attention backward on tensor cores for short sequences: a block has a whole head in shared memory and finds all gradients. Of a
// fixed width: each warp those of 16 queries and then those of 16 keys.

#include "ops/attention/flash_backward.cuh"

namespace millrace::ops::cuda {
namespace {

constexpr int kRows = kShortPositions, kOwn = kRows / kFlashWarps, kChunk = 16;
static_assert(kOwn == 16 && kFlashThreads >= kRows);

/// Blocks a multiprocessor should hold. Narrow heads are many: with 64 registers a thread, eight of them are at work.
template <int kWidth>
constexpr int kShortBlocks = kWidth <= 32   ? 8
                             : kWidth == 64 ? 4
                                            : 2;

template <class T, int kWidth>
__global__ void __launch_bounds__(kFlashThreads, kShortBlocks<kWidth>) short_backward_kernel(AttentionArgs<T> a) {
    constexpr FlashForm < kWidth, 1, kShortBlocks<kWidth><8> form;
    using Form = std::remove_const_t<decltype(form)>;
    constexpr int kStride = form.stride();
    extern __shared__ uint4 memory[];
    T *queries = reinterpret_cast<T*>(memory), *keys = queries + kRows * kStride;
    T *values = keys + kRows * kStride, *douts = values + kRows * kStride;
    T* results = douts + kRows * kStride;
    float *logsumexp = reinterpret_cast<float*>(results + kRows * kStride), *deltas = logsumexp + kRows;
    if (!a.early) begin_kernel();
    const AttentionShape shape = a.shape;
    const AttentionPlace place = place_of(a, blockIdx.x);
    const int filled = place.filled, mine = kOwn * (static_cast<int>(threadIdx.x) / 32), row = threadIdx.x;
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* rows = part_of(a.qkv, shape, place, 0);
    stage_rows(form, rows, stride, filled, shape.width, queries, kRows);
    stage_rows(form, rows + across, stride, filled, shape.width, keys, kRows);
    stage_rows(form, rows + 2 * across, stride, filled, shape.width, values, kRows);
    Deltas<T, Form> own_deltas;
    own_deltas.fetch(a.out.row(place.k, 0, place.row) + place.column, static_cast<int>(a.out.stride_row), filled, shape.width);
    if (row < kRows) logsumexp[row] = row < filled ? a.logsumexp.row(place.k, 0, place.row + row)[place.head] : 0;
    if (a.early) begin_kernel();
    stage_rows(form, a.dout.row(place.k, 0, place.row) + place.column, static_cast<int>(a.dout.stride_row), filled, shape.width,
               douts, kRows);
    commit_copies();
    await_copies<0>();
    __syncthreads();
    own_deltas.find(form, douts, deltas);
    __syncthreads();

    T* staging = results + mine * kStride;
    KeyGradient<T, Form> key_gradient;
    key_gradient.begin(form, mine, keys + mine * kStride, values + mine * kStride);
#pragma unroll 1
    for (int at = 0; at < filled; at += kChunk)
        key_gradient.template take<kChunk>(form, shape, at, queries + at * kStride, douts + at * kStride, logsumexp + at,
                                           deltas + at);
    key_gradient.store(form, a, place, staging, staging);
    QueryGradient<T, Form> query_gradient;
    query_gradient.begin(
        form, shape, filled, mine, queries + mine * kStride, douts + mine * kStride, [&](int q) { return logsumexp[q]; },
        deltas + mine);
#pragma unroll 1
    for (int at = 0; at < filled; at += kChunk)
        query_gradient.template take<kChunk>(form, shape, filled, at, keys + at * kStride, values + at * kStride);
    query_gradient.store(form, a, place, staging);
}

// Of any width: the warps find the weights of all queries and keys and the gradients of their scores once, leave them there as T,
// and then take slices of columns of all gradients.

constexpr int kThreads = 256;

/// Elements from row to row of the weights: eight rows begin in different banks.
__host__ __device__ int pitch_of(const AnyForm& form) { return form.own() + 8; }

/// A whole head, with room for weights and gradients of the scores, logsumexp and delta.
AnyForm wide_form(const AttentionShape& shape, bool whole) {
    const int rows = (shape.positions + 15) / 16 * 16;
    return {rows, 0, (shape.width + 15) / 16 * 16, whole};
}
std::size_t wide_bytes(const AnyForm& form) {
    const auto rows = static_cast<std::size_t>(form.own());
    return flash_bytes(form, 4, 0) + 2 * rows * (2 * static_cast<std::size_t>(pitch_of(form)) + sizeof(float));
}

/// Where a head's rows and numbers lie in shared memory.
template <class T>
struct WideHead {
    T *queries, *keys, *values, *douts, *weights, *gradients;
    float *logsumexp, *deltas;
    __device__ WideHead(const AnyForm& form, void* memory) {
        const int size = form.own() * form.stride(), square = form.own() * pitch_of(form);
        queries = static_cast<T*>(memory);
        keys = queries + size;
        values = keys + size;
        douts = values + size;
        weights = douts + size;
        gradients = weights + square;
        logsumexp = reinterpret_cast<float*>(gradients + square);
        deltas = logsumexp + form.own();
    }
};

/// Weights of queries [query, query + 16) and keys [key, key + 16) and the gradients of their scores, by a warp.
template <class T>
__device__ void weigh_square(const AnyForm& form, const AttentionShape& shape, const WideHead<T>& head, int filled, int query,
                             int key) {
    OwnRows<T, AnyForm> queries, douts;
    queries.load(form, head.queries + query * form.stride());
    douts.load(form, head.douts + query * form.stride());
    Sums<1, 16> weights, gradients;
    multiply_across<16>(form, weights, queries, head.keys + key * form.stride());
    multiply_across<16>(form, gradients, douts, head.values + key * form.stride());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = query + row_of(0, 2 * half), seen = row < filled ? shape.seen(row, filled) : 0;
        const float level = kLog2E * head.logsumexp[row], delta = head.deltas[row];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int column = key + column_of(n, 0), at = row * pitch_of(form) + column;
            float w[2], g[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const bool sees = column + i < seen;
                w[i] = sees ? exp2_fast(fmaf(weights[0][n][2 * half + i], shape.scale * kLog2E, -level)) : 0;
                g[i] = sees ? w[i] * (gradients[0][n][2 * half + i] - delta) : 0;
            }
            *reinterpret_cast<std::uint32_t*>(head.weights + at) = pack<T>(w[0], w[1]);
            *reinterpret_cast<std::uint32_t*>(head.gradients + at) = pack<T>(g[0], g[1]);
        }
    }
}

/// A slice of 16 rows from `own` on of the gradients of queries (part 0), keys (1) or values (2), by a warp.
template <class T>
__device__ void add_part(const AnyForm& form, const AttentionArgs<T>& a, const AttentionPlace& place, const WideHead<T>& head,
                         int own, int part) {
    const T* rows = part == 0 ? head.keys : part == 1 ? head.queries : head.douts;
    const T* square = part == 2 ? head.weights : head.gradients;
    const int lane = threadIdx.x % 32, pitch = pitch_of(form);
    const int along = (own + lane % 16) * pitch + lane / 16 * 8;
    const int turned = (lane % 8 + lane / 16 * 8) * pitch + own + lane / 8 % 2 * 8;
    Sums<1, AnyForm::kWidth> sums;
    clear(sums);
    for (int at = 0; at < form.own(); at += 16) {
        std::uint32_t left[1][4];
        if (part == 0)
            load_matrices(left[0], square + along + at);
        else
            load_transposed(left[0], square + turned + at * pitch);
        multiply_along(form, sums, left, rows + at * form.stride());
    }
    RowFactors<1> factor;
    set_all<1>(factor, part == 2 ? 1 : a.shape.scale);
    store_rows(form, sums, factor, head.values + own * form.stride() + form.slice,  // values are not read after the scores
               part_of(a.dqkv, a.shape, place, part) + own * a.dqkv.stride_row, a.dqkv.stride_row, place.filled - own,
               a.shape.positions - own, a.shape.width);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3) wide_backward_kernel(AttentionArgs<T> a, AnyForm form) {
    extern __shared__ uint4 memory[];
    const WideHead<T> head(form, memory);
    if (!a.early) begin_kernel();
    const AttentionShape shape = a.shape;
    const AttentionPlace place = place_of(a, blockIdx.x);
    const int filled = place.filled, thread = threadIdx.x, rows = form.own();
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* from = part_of(a.qkv, shape, place, 0);
    stage_rows(form, from, stride, filled, shape.width, head.queries, rows);
    stage_rows(form, from + across, stride, filled, shape.width, head.keys, rows);
    stage_rows(form, from + 2 * across, stride, filled, shape.width, head.values, rows);
    if (thread < rows) head.logsumexp[thread] = thread < filled ? a.logsumexp.row(place.k, 0, place.row + thread)[place.head] : 0;
    if (a.early) begin_kernel();
    stage_rows(form, a.dout.row(place.k, 0, place.row) + place.column, static_cast<int>(a.dout.stride_row), filled, shape.width,
               head.douts, rows);
    commit_copies();
    find_deltas(a, place, 0, rows, head.deltas);
    await_copies<0>();
    __syncthreads();

    const int warp = thread / 32, warps = static_cast<int>(blockDim.x) / 32, tiles = rows / 16, slices = form.slices();
    for (int i = warp; i < tiles * tiles; i += warps) weigh_square(form, shape, head, filled, i / tiles * 16, i % tiles * 16);
    __syncthreads();
    for (int i = warp; i < tiles * slices; i += warps) {
        form.slice = i % slices * AnyForm::kWidth;
#pragma unroll 1
        for (int part = 0; part < 3; ++part) add_part(form, a, place, head, i / slices * 16, part);
    }
}

}  // namespace

template <class T>
KernelResult make_short_backward(Context& c, const AttentionArgs<T>& a) {
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        const auto kernel = short_backward_kernel<T, kWidth>;
        MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
        return make_launch(c, kernel, attention_grid(a, 1), dim3(kFlashThreads),
                           flash_bytes(FlashForm<kWidth, 1>{}, 5, 0) + 2 * kRows * sizeof(float), a);
    });
}

template KernelResult make_short_backward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_short_backward(Context&, const AttentionArgs<f16>&);

bool takes_wide_backward(const Context& c, const AttentionShape& shape) {
    return shape.positions <= kShortPositions && wide_bytes(wide_form(shape, true)) <= c.shared_limit;
}

template <class T>
KernelResult make_wide_backward(Context& c, const AttentionArgs<T>& a) {
    const auto kernel = wide_backward_kernel<T>;
    const AnyForm form = wide_form(a.shape, a.whole);
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, 1), dim3(kThreads), wide_bytes(form), a, form);
}

template KernelResult make_wide_backward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_wide_backward(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
