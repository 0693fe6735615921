// Attention backward on tensor cores for sequences of any length, in two launches: queries' gradients by blocks of queries that
// stream keys and values, then keys' and values' by blocks of keys that stream queries. Two more products than in one launch, but
// no sum is shared between blocks and no weight leaves the registers.

#include "ops/attention/flash_backward.cuh"

namespace millrace::ops::cuda {
namespace {

template <class T, int kWidth, int kTiles, int kChunk, int kBlocks>
__global__ void __launch_bounds__(kFlashThreads, kBlocks) flash_queries_kernel(AttentionArgs<T> a) {
    constexpr int kStride = kFlashStride<kWidth>, kOwn = 16 * kTiles, kRows = kOwn * kFlashWarps;
    extern __shared__ uint4 memory[];
    T *queries = reinterpret_cast<T*>(memory), *douts = queries + kRows * kStride;
    T *keys = douts + kRows * kStride, *values = keys + 2 * kStreamed * kStride;
    float* deltas = reinterpret_cast<float*>(values + 2 * kStreamed * kStride);
    begin_kernel();
    const AttentionShape shape = a.shape;
    const int blocks = (shape.positions + kRows - 1) / kRows;
    const FlashBlock block(a.pairs(), blocks);
    const AttentionPlace place = place_of(a, block.pair);
    const int first = (blocks - 1 - block.number) * kRows;  // late queries see most
    const int filled = place.filled, mine = kOwn * (static_cast<int>(threadIdx.x) / 32);
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* rows = part_of(a.qkv, shape, place, 0);
    const int tiles = first < filled ? (shape.seen(min(first + kRows, filled) - 1, filled) + kStreamed - 1) / kStreamed : 0;
    const auto stage = [&](int tile) {
        const int at = tile * kStreamed, to = tile % 2 * kStreamed * kStride;
        const T* from = rows + std::int64_t{at} * stride + across;
        stage_rows<kWidth, kStreamed>(from, stride, filled - at, shape.width, keys + to);
        stage_rows<kWidth, kStreamed>(from + across, stride, filled - at, shape.width, values + to);
    };
    stage_rows<kWidth, kRows>(rows + std::int64_t{first} * stride, stride, filled - first, shape.width, queries);
    stage_rows<kWidth, kRows>(a.dout.row(place.k, 0, place.row + first) + place.column, static_cast<int>(a.dout.stride_row),
                              filled - first, shape.width, douts);
    if (tiles > 0) stage(0);
    commit_copies();
    Deltas<T, kWidth, kRows> own_deltas;
    own_deltas.fetch(a.out.row(place.k, 0, place.row + first) + place.column, static_cast<int>(a.out.stride_row), filled - first,
                     shape.width);
    await_copies<0>();
    __syncthreads();
    own_deltas.find(douts, deltas);
    __syncthreads();
    for (int i = threadIdx.x; i < min(kRows, filled - first); i += kFlashThreads)
        a.delta.row(place.k, 0, place.row + first + i)[place.head] = deltas[i];

    QueryGradient<T, kTiles, kWidth> gradient;
    gradient.begin(a, place, first + mine, queries + mine * kStride, douts + mine * kStride, deltas + mine);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile > 0) {
            await_copies<0>();
            __syncthreads();
        }
        if (tile + 1 < tiles) stage(tile + 1);
        commit_copies();
        const int from = tile % 2 * kStreamed * kStride;
#pragma unroll 1
        for (int i = 0; i < kStreamed; i += kChunk)
            gradient.template take<kChunk>(shape, filled, tile * kStreamed + i, keys + from + i * kStride,
                                           values + from + i * kStride);
    }
    gradient.store(a, place, queries + mine * kStride);
}

template <class T, int kWidth, int kTiles, int kChunk, int kBlocks>
__global__ void __launch_bounds__(kFlashThreads, kBlocks) flash_keys_kernel(AttentionArgs<T> a) {
    constexpr int kStride = kFlashStride<kWidth>, kOwn = 16 * kTiles, kRows = kOwn * kFlashWarps;
    extern __shared__ uint4 memory[];
    T *keys = reinterpret_cast<T*>(memory), *values = keys + kRows * kStride;
    T *queries = values + kRows * kStride, *douts = queries + 2 * kStreamed * kStride;
    float* numbers = reinterpret_cast<float*>(douts + 2 * kStreamed * kStride);  // of a tile: logsumexp, delta
    begin_kernel();
    const AttentionShape shape = a.shape;
    const int blocks = (shape.positions + kRows - 1) / kRows;
    const FlashBlock block(a.pairs(), blocks);
    const AttentionPlace place = place_of(a, block.pair);
    const int first = block.number * kRows;  // early keys are seen by most
    const int filled = place.filled, mine = kOwn * (static_cast<int>(threadIdx.x) / 32), thread = threadIdx.x;
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const int dout_stride = static_cast<int>(a.dout.stride_row);
    const T *rows = part_of(a.qkv, shape, place, 0), *dout_rows = a.dout.row(place.k, 0, place.row) + place.column;
    const int begin = shape.first_query(first) / kStreamed, end = first < filled ? (filled + kStreamed - 1) / kStreamed : begin;
    const Mat<float>& number = thread < kStreamed ? a.logsumexp : a.delta;
    const float* number_rows = number.row(place.k, 0, place.row + thread % kStreamed) + place.head;
    const auto stage = [&](int tile) {
        const int at = tile * kStreamed, to = tile % 2 * kStreamed * kStride;
        stage_rows<kWidth, kStreamed>(rows + std::int64_t{at} * stride, stride, filled - at, shape.width, queries + to);
        stage_rows<kWidth, kStreamed>(dout_rows + std::int64_t{at} * dout_stride, dout_stride, filled - at, shape.width,
                                      douts + to);
        if (thread < 2 * kStreamed)
            copy4(shared_address(numbers + tile % 2 * 2 * kStreamed + thread), number_rows + at * number.stride_row,
                  at + thread % kStreamed < filled);
    };
    const T* key_rows = rows + std::int64_t{first} * stride + across;
    stage_rows<kWidth, kRows>(key_rows, stride, filled - first, shape.width, keys);
    stage_rows<kWidth, kRows>(key_rows + across, stride, filled - first, shape.width, values);
    if (begin < end) stage(begin);
    commit_copies();
    await_copies<0>();
    __syncthreads();

    KeyGradient<T, kTiles, kWidth> gradient;
    gradient.begin(first + mine, keys + mine * kStride, values + mine * kStride);
    for (int tile = begin; tile < end; ++tile) {
        if (tile > begin) {
            await_copies<0>();
            __syncthreads();
        }
        if (tile + 1 < end) stage(tile + 1);
        commit_copies();
        const int from = tile % 2 * kStreamed * kStride;
        const float* tile_numbers = numbers + tile % 2 * 2 * kStreamed;
#pragma unroll 1
        for (int i = 0; i < kStreamed; i += kChunk)
            gradient.template take<kChunk>(shape, tile * kStreamed + i, queries + from + i * kStride, douts + from + i * kStride,
                                           tile_numbers + i, tile_numbers + kStreamed + i);
    }
    gradient.store(a, place, keys + mine * kStride, values + mine * kStride);
}

template <class T, int kWidth, int kTiles, int kChunk, int kBlocks>
KernelResult launch_backward(Context& c, const AttentionArgs<T>& a) {
    constexpr int kRows = 16 * kTiles * kFlashWarps;
    const auto queries = flash_queries_kernel<T, kWidth, kTiles, kChunk, kBlocks>,
               keys = flash_keys_kernel<T, kWidth, kTiles, kChunk, kBlocks>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(queries)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(keys)));
    const dim3 grid = attention_grid(a, (a.shape.positions + kRows - 1) / kRows);
    constexpr std::size_t kShared = flash_bytes<kWidth>(2 * kRows + 4 * kStreamed);
    static_assert(kShared + (kRows + 4 * kStreamed) * sizeof(float) <= flash_bytes_of(kWidth));
    return make_kernel([=, stream = c.stream] {
        launch(queries, grid, dim3(kFlashThreads), kShared + kRows * sizeof(float), stream, a);
        launch(keys, grid, dim3(kFlashThreads), kShared + 4 * kStreamed * sizeof(float), stream, a);
    });
}

}  // namespace

template <class T>
KernelResult make_flash_backward(Context& c, const AttentionArgs<T>& a) {
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        // As many rows as fit into a warp's registers: 255 a thread with two blocks at work, 168 with three.
        if constexpr (kWidth == 128) {
            return launch_backward<T, kWidth, 1, 16, 2>(c, a);
        } else {
            constexpr int kBlocks = kWidth == 64 ? 2 : 3;
            return fill_device(c, a) ? launch_backward<T, kWidth, 2, 16, kBlocks>(c, a)
                                     : launch_backward<T, kWidth, 1, 16, 3>(c, a);
        }
    });
}

template KernelResult make_flash_backward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_flash_backward(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
