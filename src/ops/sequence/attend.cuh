#pragma once
// Causal attention of 16 queries of a head, by one warp, over queries, keys and values in shared memory.

#include "ops/sequence/layer.cuh"

namespace millrace::ops::cuda::sequence {

/// Runs where a head's queries, keys and values begin.
struct HeadRuns {
    int query, key, value;
};

/// Queries 16 tile and following; number i of four of out[n] is row 8 (i / 2) + lane / 4, column 8 n + 2 (lane % 4) + i % 2. Rows
/// from `filled` on become 0. The logsumexp is of rows lane / 4 and 8 + lane / 4, natural.
template <int kPitch>
__device__ inline void attend(const Tile<kPitch>& qkv, const HeadRuns& head, int tile, int filled, float (&out)[4][4],
                              float (&logsumexp)[2]) {
    constexpr float kScale = 0.17677670f, kFactor = kScale * kLog2E, kLn2 = 0.69314718f;  // 1 / sqrt(32)
    const int lane = threadIdx.x % 32, row = 16 * tile + lane / 4, c = lane % 4;
    const int groups = 16 * tile < filled ? min(tile + 1, (filled + 15) / 16) : 0;  // of 16 keys, that are seen
    float scores[2 * kRows / 16][4];
    const uint4 query = qkv.load(row, head.query + c), below = qkv.load(row + 8, head.query + c);
#pragma unroll
    for (int n = 0; n < 2 * kRows / 16; ++n) {
        if (n / 2 >= groups) continue;
        const uint4 key = qkv.load(8 * n + lane / 4, head.key + c);
        scores[n][0] = scores[n][1] = scores[n][2] = scores[n][3] = 0;
        mma_bf16(scores[n], query.x, below.x, query.y, below.y, key.x, key.y);
        mma_bf16(scores[n], query.z, below.z, query.w, below.w, key.z, key.w);
        if (n / 2 < tile && 8 * n + 8 <= filled) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (8 * n + 2 * c + i % 2 >= min(filled, row + i / 2 * 8 + 1)) scores[n][i] = -INFINITY;
    }
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (int n = 0; n < 2 * kRows / 16; ++n)
            if (n / 2 < groups) top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
#pragma unroll
        for (int n = 0; n < 2 * kRows / 16; ++n) {
            if (n / 2 >= groups) continue;
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores[n][i] = exp2_fast(fmaf(scores[n][i], kFactor, -top * kFactor));
                sum += scores[n][i];
            }
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        share[half] = 1 / sum;
        logsumexp[half] = row + 8 * half < filled ? fmaf(top, kScale, log2f(sum) * kLn2) : 0;
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) {
        if (n >= groups) continue;
        const std::uint32_t weights[4] = {pack2(scores[2 * n][0], scores[2 * n][1]), pack2(scores[2 * n][2], scores[2 * n][3]),
                                          pack2(scores[2 * n + 1][0], scores[2 * n + 1][1]),
                                          pack2(scores[2 * n + 1][2], scores[2 * n + 1][3])};
#pragma unroll
        for (int d = 0; d < 2; ++d) {
            std::uint32_t value[4];
            load_transposed(value, qkv.run(16 * n + lane % 16, head.value + 2 * d + lane / 16));
            mma_bf16(out[2 * d], weights[0], weights[1], weights[2], weights[3], value[0], value[1]);
            mma_bf16(out[2 * d + 1], weights[0], weights[1], weights[2], weights[3], value[2], value[3]);
        }
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] = row + i / 2 * 8 < filled ? out[n][i] * share[i / 2] : 0;
}

}  // namespace millrace::ops::cuda::sequence
