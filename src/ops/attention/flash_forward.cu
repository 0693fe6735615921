// Attention forward on tensor cores: a block has 64 kTiles queries of one head and streams the keys and values that they see, two
// tiles in flight. The softmax is found along the way: when a larger score comes up, what was summed so far is scaled down.

#include "ops/attention/flash.cuh"

namespace millrace::ops::cuda {
namespace {

/// A warp's queries: their results grow with the keys and values that stream by.
template <class T, class Form>
struct QueryResult {
    static constexpr int kTiles = Form::kTiles;
    OwnRows<T, Form> query;
    Sums<kTiles, Form::kWidth> out;
    float top[kTiles][2], sum[kTiles][2];  ///< of the thread's rows; the sum is of this thread's columns alone
    int own, all_see, some_see;            ///< first query; keys seen by all, by some

    __device__ void begin(const Form& form, const AttentionShape& shape, int filled, int first, const T* queries) {
        own = first;
        all_see = shape.seen(own, filled);
        some_see = own < filled ? shape.seen(own + 16 * kTiles - 1, filled) : 0;
        query.load(form, queries);
        set_all<kTiles>(top, -INFINITY);
        set_all<kTiles>(sum, 0);
        clear(out);
    }
    /// In any form, of a tile of keys from `at` on: the warps of the same queries find scores for each other.
    __device__ void share_scores(const Form& form, int at, const T* keys, float4* shared) const {
        for (int i = 16 * (form.slice / Form::kWidth); i < min(form.tile(), some_see - at); i += 16 * form.slices()) {
            Sums<kTiles, 16> scores;
            multiply_across<16>(form, scores, query, keys + i * form.stride());
#pragma unroll
            for (int n = 0; n < 2; ++n)
                shared[32 * (i / 8 + n) + threadIdx.x % 32] =
                    make_float4(scores[0][n][0], scores[0][n][1], scores[0][n][2], scores[0][n][3]);
        }
        __syncthreads();
    }
    /// Keys [at, at + kKeys) of the sequence; `shared`: their scores in any form.
    template <int kKeys>
    __device__ void take(const Form& form, const AttentionShape& shape, int filled, int at, const T* keys, const T* values,
                         const float4* shared) {
        if (at >= some_see) return;
        Sums<kTiles, kKeys> scores;
        if constexpr (Form::kAny) {
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) {
                const float4 four = shared[32 * n + threadIdx.x % 32];
                scores[0][n][0] = four.x;
                scores[0][n][1] = four.y;
                scores[0][n][2] = four.z;
                scores[0][n][3] = four.w;
            }
        } else {
            multiply_across<kKeys>(form, scores, query, keys);
        }
        if (at + kKeys > all_see) {
#pragma unroll
            for (int m = 0; m < kTiles; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int seen = shape.seen(own + row_of(m, i), filled) - at;
#pragma unroll
                    for (int n = 0; n < kKeys / 8; ++n)
                        if (column_of(n, i) >= seen) scores[m][n][i] = -INFINITY;
                }
        }
        weigh<kKeys>(scores, shape.scale * kLog2E);
#pragma unroll
        for (int n = 0; n < kKeys / 8; n += 2) multiply_along<kKeys>(form, out, scores, n, values);
    }
    /// Scores become weights relative to the largest so far; `factor` 1 / sqrt(width) in base 2.
    template <int kKeys>
    __device__ void weigh(Sums<kTiles, kKeys>& scores, float factor) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float most = top[m][half];
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n) most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                const float shrink = exp2_fast((top[m][half] - most) * factor), shift = most * factor;
                top[m][half] = most;
                sum[m][half] *= shrink;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; ++i) {
                        scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], factor, -shift));
                        sum[m][half] += scores[m][n][i];
                    }
#pragma unroll
                for (int n = 0; n < Form::kWidth / 8; ++n) {
                    out[m][n][2 * half] *= shrink;
                    out[m][n][2 * half + 1] *= shrink;
                }
            }
    }
    /// Writes results, through the rows of `staging`, and logsumexp.
    __device__ void store(const Form& form, const AttentionArgs<T>& a, const AttentionPlace& place, T* staging) const {
        RowFactors<kTiles> share;
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float all = sum[m][half];
                all += __shfl_xor_sync(0xffffffffu, all, 1);
                all += __shfl_xor_sync(0xffffffffu, all, 2);
                share[m][half] = 1 / all;
                const int row = own + row_of(m, 2 * half);
                if (threadIdx.x % 4 == 0 && form.slice == 0 && row < a.shape.positions)
                    a.logsumexp.row(place.k, 0, place.row + row)[place.head] =
                        row < place.filled ? fmaf(top[m][half], a.shape.scale, log2f(all) * kLn2) : 0;
            }
        store_rows(form, out, share, staging, a.out.row(place.k, 0, place.row + own) + place.column, a.out.stride_row,
                   place.filled - own, a.shape.positions - own, a.shape.width);
    }
};

/// kKeys: keys a warp takes at a time; kBlocks: blocks a multiprocessor should hold.
template <class T, class Form, int kKeys, int kBlocks>
__global__ void __launch_bounds__(Form::kMostThreads, kBlocks) flash_forward_kernel(AttentionArgs<T> a, Form form) {
    extern __shared__ uint4 memory[];
    T* queries = reinterpret_cast<T*>(memory);
    T* streamed = queries + form.own() * form.stride();  // pairs of tiles: keys, values
    if (!a.early) begin_kernel();
    const AttentionShape shape = a.shape;
    const FlashBlock block(a, form, true);  // late queries see most
    if (a.early) begin_kernel();
    const int filled = block.place.filled, stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* rows = part_of(a.qkv, shape, block.place, 0);
    const int tiles = block.seen_tiles(shape, form), size = form.tile() * form.stride();
    const auto stage = [&](int tile) {
        const int at = tile * form.tile();
        const T* from = rows + std::int64_t{at} * stride + across;
        T* to = streamed + tile % Form::kBuffers * 2 * size;
        stage_rows(form, from, stride, filled - at, shape.width, to, form.tile());
        stage_rows(form, from + across, stride, filled - at, shape.width, to + size, form.tile());
    };
    if (tiles > 0) {
        stage_rows(form, rows + std::int64_t{block.first} * stride, stride, filled - block.first, shape.width, queries,
                   form.own());
        stage(0);
    }
    commit_copies();
    await_copies<0>();
    __syncthreads();

    // Read by this warp alone, or in any form not after the scores of the last tile: results may lie there later.
    T* own_rows = queries + (block.own - block.first) * form.stride();
    float4* shared =
        reinterpret_cast<float4*>(streamed + 2 * Form::kBuffers * size) + (block.own - block.first) * form.tile() / 4;
    QueryResult<T, Form> result;
    result.begin(form, shape, filled, block.own, own_rows);
    stream_tiles(form, 0, tiles, stage, [&](int tile) {
        const T* keys = streamed + tile % Form::kBuffers * 2 * size;
        if constexpr (Form::kAny) result.share_scores(form, tile * form.tile(), keys, shared);
#pragma unroll 1
        for (int i = 0; i < form.tile(); i += kKeys)
            result.template take<kKeys>(form, shape, filled, tile * form.tile() + i, keys + i * form.stride(),
                                        keys + size + i * form.stride(), shared + 4 * i);
    });
    result.store(form, a, block.place, own_rows + form.slice);
}

template <int kKeys, int kBlocks, class T, class Form>
KernelResult launch_forward(Context& c, const AttentionArgs<T>& a, const Form& form) {
    const auto kernel = flash_forward_kernel<T, Form, kKeys, kBlocks>;
    const int pairs = a.shape.positions > form.tile() ? Form::kBuffers : 1;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, flash_blocks(a, form)), dim3(flash_threads(form)),
                       flash_bytes(form, 1, pairs), a, form);
}

}  // namespace

template <class T>
KernelResult make_flash_forward(Context& c, const AttentionArgs<T>& a) {
    if (!has_flash_width(c, a)) return launch_forward<kAnyKeys, 1>(c, a, any_form(c, a.shape, a.whole, 1, kAnyKeys));
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        constexpr int kGatheringBlocks = kWidth == 128 ? 3 : 4;
        if (!a.whole) return launch_forward<32, kGatheringBlocks>(c, a, FlashForm<kWidth, 1, true, false>{});
        // 32 rows of 64 columns take all registers that a thread may have. Short sequences want many blocks at once instead.
        constexpr int kBlocks = kWidth == 64 ? 2 : 3, kManyBlocks = kWidth == 64 ? 5 : 8;
        if constexpr (kWidth <= 64) {
            if (a.shape.positions <= kShortPositions) return launch_forward<32, kManyBlocks>(c, a, FlashForm<kWidth, 1>{});
            if (fill_device(c, a)) return launch_forward<64, kBlocks>(c, a, FlashForm<kWidth, 2>{});
        }
        return launch_forward<64, 3>(c, a, FlashForm<kWidth, 1>{});
    });
}

template KernelResult make_flash_forward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_flash_forward(Context&, const AttentionArgs<f16>&);

bool takes_flash(const Context& c, const AttentionShape& shape) {
    constexpr std::size_t kOlder = 64 * 1024;  // devices with so little shared memory lack the instructions
    return c.shared_limit > kOlder && any_form(c, shape, true, 2, kAnyChunk).own() > 0 &&
           any_form(c, shape, true, 1, kAnyKeys).own() > 0;
}

}  // namespace millrace::ops::cuda
