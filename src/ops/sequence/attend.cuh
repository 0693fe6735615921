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
template <class T, int kPitch>
__device__ inline void attend(const Tile<T, kPitch>& qkv, const HeadRuns& head, int tile, int filled, float (&out)[4][4],
                              float (&logsumexp)[2]) {
    constexpr int kGroups = kRows / 16;
    constexpr float kScale = 0.17677670f, kFactor = kScale * kLog2E, kLn2 = 0.69314718f;  // 1 / sqrt(32)
    const int lane = threadIdx.x % 32, row = 16 * tile + lane / 4, c = lane % 4;
    const int groups = 16 * tile < filled ? min(tile + 1, (filled + 15) / 16) : 0;  // of 16 keys, that are seen
    std::uint32_t query[2][4];                                                      // of 16 columns each
#pragma unroll
    for (int d = 0; d < 2; ++d) load_matrices(query[d], qkv.run(16 * tile + lane % 16, head.query + 2 * d + lane / 16));
    const T* const key = qkv.run(lane % 8, head.key + lane / 8);  // eight rows further on, a run lies at the same place
    float scores[kGroups][2][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // of this thread's rows and columns
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
        if (group >= groups) break;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            float(&s)[4] = scores[group][n];
            std::uint32_t k[4];
            load_matrices(k, key + (16 * group + 8 * n) * kPitch);
            s[0] = s[1] = s[2] = s[3] = 0;
            mma16<T>(s, query[0], k[0], k[1]);
            mma16<T>(s, query[1], k[2], k[3]);
        }
        if (group + 1 == groups) {  // all queries see all keys of the groups before
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (16 * group + i / 4 * 8 + 2 * c + i % 2 >= min(filled, row + i / 2 % 2 * 8 + 1))
                    scores[group][i / 4][i % 4] = -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[group][i / 4][i % 4]);
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
        shift[half] = top[half] * kFactor;
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    const T* const value[2] = {qkv.run(lane % 16, head.value + lane / 16), qkv.run(lane % 16, head.value + 2 + lane / 16)};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
        if (group >= groups) break;
        std::uint32_t weights[4];
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float(&s)[4] = scores[group][n];
                const float low = exp2_fast(fmaf(s[2 * half], kFactor, -shift[half])),
                            high = exp2_fast(fmaf(s[2 * half + 1], kFactor, -shift[half]));
                sum[half] += low + high;
                weights[2 * n + half] = pack<T>(low, high);
            }
#pragma unroll
        for (int d = 0; d < 2; ++d) {
            std::uint32_t v[4];
            load_transposed(v, value[d] + 16 * group * kPitch);
            mma16<T>(out[2 * d], weights, v[0], v[1]);
            mma16<T>(out[2 * d + 1], weights, v[2], v[3]);
        }
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
