// Attention forward on tensor cores: a block has 64 kTiles queries of one head and streams the keys and values that they see, two
// tiles in flight. The softmax is found along the way: when a larger score comes up, what was summed so far is scaled down.

#include "ops/attention/flash.cuh"

namespace millrace::ops::cuda {
namespace {

/// Blocks a multiprocessor should hold: with 32 rows a warp needs up to 255 registers per thread.
template <int kWidth, int kTiles>
constexpr int kForwardBlocks = kTiles == 2    ? 2
                               : kWidth <= 32 ? 6
                               : kWidth == 64 ? 4
                                              : 3;

template <int kTiles>
struct Softmax {
    float top[kTiles][2], sum[kTiles][2];  ///< of the thread's rows; the sum is of this thread's columns alone

    __device__ Softmax() {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
            top[m][0] = top[m][1] = -INFINITY;
            sum[m][0] = sum[m][1] = 0;
        }
    }
    /// Scores become weights relative to the largest so far; `factor` 1 / sqrt(width) in base 2.
    template <int kWidth>
    __device__ void take(Sums<kTiles, kStreamed>& scores, Sums<kTiles, kWidth>& out, float factor) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float most = top[m][half];
#pragma unroll
                for (int n = 0; n < kStreamed / 8; ++n)
                    most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                const float shrink = exp2_fast((top[m][half] - most) * factor), shift = most * factor;
                top[m][half] = most;
                float total = sum[m][half] * shrink;
#pragma unroll
                for (int n = 0; n < kStreamed / 8; ++n)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; ++i) {
                        scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], factor, -shift));
                        total += scores[m][n][i];
                    }
                sum[m][half] = total;
#pragma unroll
                for (int n = 0; n < kWidth / 8; ++n) {
                    out[m][n][2 * half] *= shrink;
                    out[m][n][2 * half + 1] *= shrink;
                }
            }
    }
};

template <int kWidth, int kTiles>
__global__ void __launch_bounds__(kFlashThreads, (kForwardBlocks<kWidth, kTiles>)) flash_forward_kernel(AttentionArgs<bf16> a) {
    constexpr int kStride = kFlashStride<kWidth>, kOwn = 16 * kTiles, kQueries = kOwn * kFlashWarps;
    extern __shared__ uint4 memory[];
    bf16 *queries = reinterpret_cast<bf16*>(memory), *keys = queries + kQueries * kStride,
         *values = keys + 2 * kStreamed * kStride;
    begin_kernel();
    const AttentionShape shape = a.shape;
    const int blocks = (shape.positions + kQueries - 1) / kQueries;
    const int first = (blocks - 1 - static_cast<int>(blockIdx.x) % blocks) * kQueries;  // those that see most begin first
    const AttentionPlace place = place_of(a, static_cast<int>(blockIdx.x) / blocks);
    const int filled = place.filled, own = first + kOwn * (static_cast<int>(threadIdx.x) / 32);
    const int stride = static_cast<int>(a.qkv.stride_row), across = shape.heads * shape.width;
    const bf16* rows = part_of(a.qkv, shape, place, 0);
    const int tiles = first < filled ? (shape.seen(min(first + kQueries, filled) - 1, filled) + kStreamed - 1) / kStreamed : 0;
    const auto stage = [&](int tile) {
        const int at = tile * kStreamed, to = tile % 2 * kStreamed * kStride;
        const bf16* from = rows + std::int64_t{at} * stride + across;
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

    bf16* mine = queries + (own - first) * kStride;  // read by this warp alone, so that results may lie there later
    OwnRows<kTiles, kWidth> query;
    load_own<kTiles, kWidth>(query, mine + along_offset<kWidth>());
    Sums<kTiles, kWidth> out = {};
    Softmax<kTiles> softmax;
    const int all_see = shape.seen(own, filled), some_see = shape.seen(own + kOwn - 1, filled);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile > 0) {
            await_copies<0>();
            __syncthreads();
        }
        if (tile + 1 < tiles) stage(tile + 1);
        commit_copies();
        const int at = tile * kStreamed, from = tile % 2 * kStreamed * kStride;
        if (at >= some_see) continue;
        Sums<kTiles, kStreamed> scores;
        multiply_across<kTiles, kWidth, kStreamed>(scores, query, keys + from + across_offset<kWidth>());
        if (at + kStreamed > all_see) {
#pragma unroll
            for (int m = 0; m < kTiles; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int seen = shape.seen(own + row_of(m, i), filled) - at;
#pragma unroll
                    for (int n = 0; n < kStreamed / 8; ++n)
                        if (column_of(n, i) >= seen) scores[m][n][i] = -INFINITY;
                }
        }
        softmax.template take<kWidth>(scores, out, shape.scale * kLog2E);
#pragma unroll
        for (int n = 0; n < kStreamed / 16; ++n) {
            std::uint32_t weights[kTiles][4];
            pack_weights<kTiles, kStreamed>(weights, scores, 2 * n);
            multiply_along<kTiles, kWidth>(out, weights, values + from + 16 * n * kStride + along_offset<kWidth>());
        }
    }

    float share[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = softmax.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            share[m][half] = 1 / sum;
            const int row = own + row_of(m, 2 * half);
            if (threadIdx.x % 4 == 0 && row < shape.positions)
                a.logsumexp.row(place.k, 0, place.row + row)[place.head] =
                    row < filled ? fmaf(softmax.top[m][half], shape.scale, log2f(sum) * kLn2) : 0;
        }
    store_rows<kTiles, kWidth>(out, share, mine, a.out.row(place.k, 0, place.row + own) + place.column, a.out.stride_row,
                               filled - own, shape.positions - own, shape.width);
}

template <int kWidth, int kTiles>
KernelResult launch_forward(Context& c, const AttentionArgs<bf16>& a) {
    constexpr int kQueries = 16 * kTiles * kFlashWarps;
    const auto kernel = flash_forward_kernel<kWidth, kTiles>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    return make_launch(c, kernel, attention_grid(a, (a.shape.positions + kQueries - 1) / kQueries), dim3(kFlashThreads),
                       flash_bytes<kWidth>(kQueries + 4 * kStreamed), a);
}

}  // namespace

KernelResult make_flash_forward(Context& c, const AttentionArgs<bf16>& a) {
    return with_flash_width(a.shape.width, [&]<int kWidth>() -> KernelResult {
        if constexpr (kWidth <= 64)  // 32 rows of 128 columns would not fit into a warp's registers
            if (a.shape.positions > kShortPositions) return launch_forward<kWidth, 2>(c, a);
        return launch_forward<kWidth, 1>(c, a);
    });
}

}  // namespace millrace::ops::cuda
