// Attention forward on tensor cores: a block has 64 kTiles queries of one head and streams the keys and values that they see, two
// tiles in flight. The softmax is found along the way: when a larger score comes up, what was summed so far is scaled down.

#include "ops/attention/flash.cuh"

namespace millrace::ops::cuda {
namespace {

/// A warp's queries: their results grow with the keys and values that stream by.
template <class T, int kTiles, int kWidth>
struct QueryResult {
    static constexpr int kOwn = 16 * kTiles;
    OwnRows<T, kTiles, kWidth> query;
    Sums<kTiles, kWidth> out;
    float top[kTiles][2], sum[kTiles][2];  ///< of the thread's rows; the sum is of this thread's columns alone
    int own, all_see, some_see;            ///< first query; keys seen by all, by some

    __device__ void begin(const AttentionShape& shape, int filled, int first, const T* queries) {
        own = first;
        all_see = shape.seen(own, filled);
        some_see = own < filled ? shape.seen(own + kOwn - 1, filled) : 0;
        query.load(queries);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
            top[m][0] = top[m][1] = -INFINITY;
            sum[m][0] = sum[m][1] = 0;
        }
        clear(out);
    }
    /// Keys [at, at + kKeys) of the sequence.
    template <int kKeys>
    __device__ void take(const AttentionShape& shape, int filled, int at, const T* keys, const T* values) {
        if (at >= some_see) return;
        Sums<kTiles, kKeys> scores;
        multiply_across<kTiles, kWidth, kKeys>(scores, query, keys + across_offset<kWidth>());
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
        for (int n = 0; n < kKeys / 16; ++n) {
            std::uint32_t weights[kTiles][4];
            pack_weights<T, kTiles, kKeys>(weights, scores, 2 * n);
            multiply_along<kTiles, kWidth>(out, weights, values + 16 * n * kFlashStride<kWidth> + along_offset<kWidth>());
        }
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
                for (int n = 0; n < kWidth / 8; ++n) {
                    out[m][n][2 * half] *= shrink;
                    out[m][n][2 * half + 1] *= shrink;
                }
            }
    }
    /// Writes results, through the rows of `staging`, and logsumexp.
    __device__ void store(const AttentionArgs<T>& a, const AttentionPlace& place, T* staging) const {
        float share[kTiles][2];
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float all = sum[m][half];
                all += __shfl_xor_sync(0xffffffffu, all, 1);
                all += __shfl_xor_sync(0xffffffffu, all, 2);
                share[m][half] = 1 / all;
                const int row = own + row_of(m, 2 * half);
                if (threadIdx.x % 4 == 0 && row < a.shape.positions)
                    a.logsumexp.row(place.k, 0, place.row + row)[place.head] =
                        row < place.filled ? fmaf(top[m][half], a.shape.scale, log2f(all) * kLn2) : 0;
            }
        store_rows<kTiles, kWidth>(out, share, staging, a.out.row(place.k, 0, place.row + own) + place.column, a.out.stride_row,
                                   place.filled - own, a.shape.positions - own, a.shape.width);
    }
};

/// kKeys: keys a warp takes at a time; kBlocks: blocks a multiprocessor should hold.
template <class T, int kWidth, int kTiles, int kKeys, int kBlocks>
__global__ void __launch_bounds__(kFlashThreads, kBlocks) flash_forward_kernel(AttentionArgs<T> a) {
    constexpr int kStride = kFlashStride<kWidth>, kOwn = 16 * kTiles, kQueries = kOwn * kFlashWarps;
    extern __shared__ uint4 memory[];
    T* queries = reinterpret_cast<T*>(memory);
    T *keys = queries + kQueries * kStride, *values = keys + kStreamed * kStride;  // a second pair of tiles lies behind
    if (!a.early) begin_kernel();
    const AttentionShape shape = a.shape;
    const int blocks = (shape.positions + kQueries - 1) / kQueries;
    const FlashBlock block(a.pairs(), blocks);
    const AttentionPlace place = place_of(a, block.pair);
    if (a.early) begin_kernel();
    const int first = (blocks - 1 - block.number) * kQueries;  // late queries see most
    const int filled = place.filled, mine = kOwn * (static_cast<int>(threadIdx.x) / 32);
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const T* rows = part_of(a.qkv, shape, place, 0);
    const int tiles = first < filled ? (shape.seen(min(first + kQueries, filled) - 1, filled) + kStreamed - 1) / kStreamed : 0;
    const auto stage = [&](int tile) {
        const int at = tile * kStreamed, to = tile % 2 * 2 * kStreamed * kStride;
        const T* from = rows + std::int64_t{at} * stride + across;
        stage_rows<kWidth, kStreamed>(from, stride, filled - at, shape.width, keys + to);
        stage_rows<kWidth, kStreamed>(from + across, stride, filled - at, shape.width, values + to);
    };
    if (tiles > 0) {
        stage_rows<kWidth, kQueries>(rows + std::int64_t{first} * stride, stride, filled - first, shape.width, queries);
        stage(0);
    }
    commit_copies();
    await_copies<0>();
    __syncthreads();

    T* own_rows = queries + mine * kStride;  // read by this warp alone, so that results may lie there later
    QueryResult<T, kTiles, kWidth> result;
    result.begin(shape, filled, first + mine, own_rows);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile > 0) {
            await_copies<0>();
            __syncthreads();
        }
        if (tile + 1 < tiles) stage(tile + 1);
        commit_copies();
        const int from = tile % 2 * 2 * kStreamed * kStride;
#pragma unroll 1
        for (int i = 0; i < kStreamed; i += kKeys)
            result.template take<kKeys>(shape, filled, tile * kStreamed + i, keys + from + i * kStride,
                                        values + from + i * kStride);
    }
    result.store(a, place, own_rows);
}

template <class T, int kWidth, int kTiles, int kKeys, int kBlocks>
KernelResult launch_forward(Context& c, const AttentionArgs<T>& a) {
    constexpr int kQueries = 16 * kTiles * kFlashWarps;
    const auto kernel = flash_forward_kernel<T, kWidth, kTiles, kKeys, kBlocks>;
    const int tiles = a.shape.positions > kStreamed ? 2 : 1;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, (a.shape.positions + kQueries - 1) / kQueries), dim3(kFlashThreads),
                       flash_bytes<kWidth>(kQueries + tiles * 2 * kStreamed), a);
}

}  // namespace

template <class T>
KernelResult make_flash_forward(Context& c, const AttentionArgs<T>& a) {
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        // 32 rows of 64 columns take all registers that a thread may have. Short sequences want many blocks at once instead.
        constexpr int kBlocks = kWidth == 64 ? 2 : 3, kManyBlocks = kWidth == 64 ? 5 : 8;
        if constexpr (kWidth <= 64) {
            if (a.shape.positions <= kShortPositions) return launch_forward<T, kWidth, 1, 32, kManyBlocks>(c, a);
            if (fill_device(c, a)) return launch_forward<T, kWidth, 2, 64, kBlocks>(c, a);
        }
        return launch_forward<T, kWidth, 1, 64, 3>(c, a);
    });
}

template KernelResult make_flash_forward(Context&, const AttentionArgs<bf16>&);
template KernelResult make_flash_forward(Context&, const AttentionArgs<f16>&);

}  // namespace millrace::ops::cuda
