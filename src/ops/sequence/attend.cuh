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
    const uint4 query = qkv.load(row, head.query + c), below = qkv.load(row + 8, head.query + c);
    // Of the first group; eight rows further on, a run lies at the same place of its row.
    const bf16 *key_at = qkv.run(lane / 4, head.key + c), *value_at = qkv.run(lane % 16, head.value + lane / 16),
               *other_at = qkv.run(lane % 16, head.value + 2 + lane / 16);
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this thread's rows; the sum is of its columns alone
#pragma unroll
    for (int n = 0; n < 4; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
        float scores[2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const uint4 key = *reinterpret_cast<const uint4*>(key_at + 8 * kPitch * n);
            mma_bf16(scores[n], query.x, below.x, query.y, below.y, key.x, key.y);
            mma_bf16(scores[n], query.z, below.z, query.w, below.w, key.z, key.w);
        }
        if (group + 1 == groups) {  // all queries see all keys of the groups before
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int seen = min(filled, row + 8 * half + 1) - 16 * group - 2 * c;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (8 * (i / 2) + i % 2 >= seen) scores[i / 2][2 * half + i % 2] = -INFINITY;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = top[half];
#pragma unroll
            for (int n = 0; n < 2; ++n) most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float shrink = exp2_fast((top[half] - most) * kFactor), shift = most * kFactor;
            top[half] = most;
            sum[half] *= shrink;
#pragma unroll
            for (int n = 0; n < 2; ++n)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    scores[n][i] = exp2_fast(fmaf(scores[n][i], kFactor, -shift));
                    sum[half] += scores[n][i];
                }
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                out[n][2 * half] *= shrink;
                out[n][2 * half + 1] *= shrink;
            }
        }
        const std::uint32_t weights[4] = {pack2(scores[0][0], scores[0][1]), pack2(scores[0][2], scores[0][3]),
                                          pack2(scores[1][0], scores[1][1]), pack2(scores[1][2], scores[1][3])};
#pragma unroll
        for (int d = 0; d < 2; ++d) {
            std::uint32_t value[4];
            load_transposed(value, d == 0 ? value_at : other_at);
            mma_bf16(out[2 * d], weights[0], weights[1], weights[2], weights[3], value[0], value[1]);
            mma_bf16(out[2 * d + 1], weights[0], weights[1], weights[2], weights[3], value[2], value[3]);
        }
        key_at += 16 * kPitch;
        value_at += 16 * kPitch;
        other_at += 16 * kPitch;
    }
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float all = sum[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        const bool fills = row + 8 * half < filled;
        share[half] = fills ? __fdividef(1.0f, all) : 0;
        logsumexp[half] = fills ? fmaf(top[half], kScale, __log2f(all) * kLn2) : 0;
    }
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] *= share[i / 2];
}

}  // namespace millrace::ops::cuda::sequence
