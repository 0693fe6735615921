// Attention backward on tensor cores for sequences of any length, in two launches: queries' gradients by blocks of queries that
// stream keys and values, then keys' and values' by blocks of keys that stream queries. Two more products than in one launch, but
// no sum is shared between blocks and no weight leaves the registers.

#include "ops/attention/flash_backward.cuh"

namespace millrace::ops::cuda {
namespace {

template <class T, class Form, int kChunk, int kBlocks>
__global__ void __launch_bounds__(Form::kMostThreads, kBlocks) flash_queries_kernel(AttentionArgs<T> a, Form form) {
    extern __shared__ uint4 memory[];
    T *queries = reinterpret_cast<T*>(memory), *douts = queries + form.own() * form.stride();
    T* streamed = douts + form.own() * form.stride();  // pairs of tiles: keys, values
    const int size = form.tile() * form.stride();
    float *exchanged = reinterpret_cast<float*>(streamed + 2 * Form::kBuffers * size), *deltas = exchanged + form.exchanged();
    begin_kernel();
    const AttentionShape shape = a.shape;
    const FlashBlock block(a, form, true);  // late queries see most
    const AttentionPlace& place = block.place;
    const int first = block.first, filled = place.filled, own = block.own - first;
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* rows = part_of(a.qkv, shape, place, 0);
    const int tiles = block.seen_tiles(shape, form);
    const auto stage = [&](int tile) {
        const int at = tile * form.tile();
        const T* from = rows + std::int64_t{at} * stride + across;
        T* to = streamed + tile % Form::kBuffers * 2 * size;
        stage_rows(form, from, stride, filled - at, shape.width, to, form.tile());
        stage_rows(form, from + across, stride, filled - at, shape.width, to + size, form.tile());
    };
    stage_rows(form, rows + std::int64_t{first} * stride, stride, filled - first, shape.width, queries, form.own());
    stage_rows(form, a.dout.row(place.k, 0, place.row + first) + place.column, static_cast<int>(a.dout.stride_row),
               filled - first, shape.width, douts, form.own());
    if (tiles > 0) stage(0);
    commit_copies();
    if constexpr (Form::kAny) {
        find_deltas(a, place, first, form.own(), deltas);
        await_copies<0>();
    } else {
        Deltas<T, Form> own_deltas;
        own_deltas.fetch(a.out.row(place.k, 0, place.row + first) + place.column, static_cast<int>(a.out.stride_row),
                         filled - first, shape.width);
        await_copies<0>();
        __syncthreads();
        own_deltas.find(form, douts, deltas);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < min(form.own(), filled - first); i += blockDim.x)
        a.delta.row(place.k, 0, place.row + first + i)[place.head] = deltas[i];

    QueryGradient<T, Form> gradient;
    const auto level = [&](int row) { return a.logsumexp.row(place.k, 0, place.row + row)[place.head]; };
    gradient.begin(form, shape, filled, block.own, queries + own * form.stride(), douts + own * form.stride(), level,
                   deltas + own);
    uint4* shared = reinterpret_cast<uint4*>(exchanged + own * form.tile());
    stream_tiles(form, 0, tiles, stage, [&](int tile) {
        const T* keys = streamed + tile % Form::kBuffers * 2 * size;
        gradient.template take_tile<kChunk>(form, shape, filled, tile * form.tile(), keys, keys + size, shared);
    });
    gradient.store(form, a, place, queries + own * form.stride() + form.slice);
}

template <class T, class Form, int kChunk, int kBlocks>
__global__ void __launch_bounds__(Form::kMostThreads, kBlocks) flash_keys_kernel(AttentionArgs<T> a, Form form) {
    extern __shared__ uint4 memory[];
    T *keys = reinterpret_cast<T*>(memory), *values = keys + form.own() * form.stride();
    T* streamed = values + form.own() * form.stride();  // pairs of tiles: queries, dout
    const int size = form.tile() * form.stride();
    float* exchanged = reinterpret_cast<float*>(streamed + 2 * Form::kBuffers * size);
    float* numbers = exchanged + form.exchanged();  // of a tile: logsumexp, delta
    begin_kernel();
    const AttentionShape shape = a.shape;
    const FlashBlock block(a, form, false);  // early keys are seen by most
    const AttentionPlace& place = block.place;
    const int first = block.first, filled = place.filled, own = block.own - first;
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const int dout_stride = static_cast<int>(a.dout.stride_row);
    const T *rows = part_of(a.qkv, shape, place, 0), *dout_rows = a.dout.row(place.k, 0, place.row) + place.column;
    const int begin = shape.first_query(first) / form.tile(),
              end = first < filled ? (filled + form.tile() - 1) / form.tile() : begin;
    const auto stage = [&](int tile) {
        const int at = tile * form.tile();
        T* to = streamed + tile % Form::kBuffers * 2 * size;
        stage_rows(form, rows + std::int64_t{at} * stride, stride, filled - at, shape.width, to, form.tile());
        stage_rows(form, dout_rows + std::int64_t{at} * dout_stride, dout_stride, filled - at, shape.width, to + size,
                   form.tile());
        for (int i = threadIdx.x; i < 2 * form.tile(); i += blockDim.x) {
            const Mat<float>& number = i < form.tile() ? a.logsumexp : a.delta;
            const int row = at + i % form.tile();
            copy4(shared_address(numbers + tile % Form::kBuffers * 2 * form.tile() + i),
                  number.row(place.k, 0, place.row + row) + place.head, row < filled);
        }
    };
    const T* key_rows = rows + std::int64_t{first} * stride + across;
    stage_rows(form, key_rows, stride, filled - first, shape.width, keys, form.own());
    stage_rows(form, key_rows + across, stride, filled - first, shape.width, values, form.own());
    if (begin < end) stage(begin);
    commit_copies();
    await_copies<0>();
    __syncthreads();

    KeyGradient<T, Form> gradient;
    gradient.begin(form, block.own, keys + own * form.stride(), values + own * form.stride());
    uint4* shared = reinterpret_cast<uint4*>(exchanged + own * form.tile());
    stream_tiles(form, begin, end, stage, [&](int tile) {
        const T* queries = streamed + tile % Form::kBuffers * 2 * size;
        gradient.template take_tile<kChunk>(form, shape, filled, tile * form.tile(), queries, queries + size,
                                            numbers + tile % Form::kBuffers * 2 * form.tile(), shared);
    });
    gradient.store(form, a, place, keys + own * form.stride() + form.slice, values + own * form.stride() + form.slice);
}

template <int kChunk, int kBlocks, class T, class Form>
KernelResult launch_backward(Context& c, const AttentionArgs<T>& a, const Form& form) {
    const auto queries = flash_queries_kernel<T, Form, kChunk, kBlocks>, keys = flash_keys_kernel<T, Form, kChunk, kBlocks>;
    if constexpr (!Form::kAny)
        static_assert(flash_bytes(Form{}, 2) + 4 * kStreamed * sizeof(float) <= flash_bytes_of(Form::kWidth));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(queries)));
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(keys)));
    const dim3 grid = attention_grid(a, flash_blocks(a, form)), block(flash_threads(form));
    const std::size_t shared = flash_bytes(form, 2), deltas = form.own() * sizeof(float),
                      numbers = 2 * Form::kBuffers * form.tile() * sizeof(float);
    return make_kernel([=, stream = c.stream] {
        launch(queries, grid, block, shared + deltas, stream, a, form);
        launch(keys, grid, block, shared + numbers, stream, a, form);
    });
}

}  // namespace

template <class T>
KernelResult make_flash_backward(Context& c, const AttentionArgs<T>& a) {
    const bool fixed = has_flash_width(c, a);
    if (fixed && a.whole && a.shape.positions <= kShortPositions) return make_short_backward(c, a);
    if (!(fixed && a.whole) && takes_wide_backward(c, a.shape)) return make_wide_backward(c, a);
    if (!fixed) return launch_backward<kAnyChunk, 1>(c, a, any_form(c, a.shape, a.whole, 2, kAnyChunk));
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        if (!a.whole) return launch_backward<16, 2>(c, a, FlashForm<kWidth, 1, true, false>{});
        // As many rows as fit into a warp's registers: 255 a thread with two blocks at work, 168 with three.
        if constexpr (kWidth == 128) {
            return launch_backward<16, 2>(c, a, FlashForm<kWidth, 1>{});
        } else {
            constexpr int kBlocks = kWidth == 64 ? 2 : 3;
            return fill_device(c, a) ? launch_backward<16, kBlocks>(c, a, FlashForm<kWidth, 2>{})
                                     : launch_backward<16, 3>(c, a, FlashForm<kWidth, 1>{});
        }
    });
}

template KernelResult make_flash_backward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_flash_backward(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
