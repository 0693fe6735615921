// Attention backward on tensor cores for short sequences: a block has a whole head in shared memory and finds all gradients, each
// warp those of 16 queries and then those of 16 keys.

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

}  // namespace millrace::ops::cuda
