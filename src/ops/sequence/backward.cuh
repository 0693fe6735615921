#pragma once
// Pieces of the way back through a layer over one short sequence of at most kRows positions. A block of kWarps warps has kOwn of
// these rows in shared memory (bf16) from the first gradient to the last: all of them, or half with another block of its
// cluster. Weights come from the L2 cache straight into registers, once per block.

#include "ops/attention/flash_backward.cuh"
#include "ops/cuda/run.cuh"

namespace millrace::ops::cuda::layer_back {

constexpr int kRows = 64, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kWidth = 128, kHeadWidth = 32, kHeads = kWidth / kHeadWidth, kProjected = 3 * kWidth;

/// Elements of a row in shared memory: eight rows of a fragment lie in different banks.
template <int kCols>
constexpr int kPitch = kCols + 8;
/// Elements of one head's rows, laid as the pieces of attention want them.
constexpr int kHeadStride = kFlashStride<kHeadWidth>, kHeadRows = kRows * kHeadStride;

__device__ inline int warp_of() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % 32; }

/// Begins copies of kCount rows of kCols columns, eight elements a thread and row: zeros from row `rows` on. place(row, column)
/// is where they go. Loops stay loops here and below: a block runs through its code once or twice, so code that is not in the
/// instruction cache costs more than what unrolling saves.
template <int kCount, int kCols, class Place>
__device__ void stage(const bf16* from, std::int64_t stride, int rows, Place place) {
    constexpr int kVectors = kCols / 8, kStep = kThreads / kVectors;
    const int first = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    if (first >= kStep) return;
    from += first * stride + column;
#pragma unroll 1
    for (int row = first; row < kCount; row += kStep, from += kStep * stride)
        copy16(shared_address(place(row, column)), from, row < rows);
}
template <int kCount, int kCols>
__device__ void stage(const bf16* from, std::int64_t stride, int rows, bf16* to) {
    stage<kCount, kCols>(from, stride, rows, [to](int row, int column) { return to + row * kPitch<kCols> + column; });
}

/// rows [kOwn, summed] times w [summed, kWidth]. A warp has a strip of 32 columns of all rows and half of the summed index;
/// join() adds the halves and leaves each warp half of the rows. Tile j of a strip has the columns 4 n + j: a lane reads four
/// neighbouring columns of w, and its sums are eight neighbouring columns of a row.
template <int kOwn>
struct RowsProduct {
    static constexpr int kStrips = kWidth / 32, kAll = kOwn / 16, kTiles = kAll / 2;  ///< tiles of 16 rows: all, owned in the end
    static constexpr int kAhead = 4;  ///< steps of 16 summed elements whose weights are under way
    static_assert(kWarps == 2 * kStrips);

    uint2 weights[kAhead][4];
    const bf16* from;
    int stride, groups;  ///< of a row of w; of kAhead steps
    float sums[kAll][4][4];

    [[nodiscard]] static __device__ int share() { return warp_of() / kStrips; }
    [[nodiscard]] static __device__ int strip() { return warp_of() % kStrips; }
    /// This lane's row `half` (of two) of owned tile m.
    [[nodiscard]] static __device__ int row(int m, int half) { return 16 * (kTiles * share() + m) + 8 * half + lane_of() / 4; }

    /// Asks for the first weights: may be long before multiply(). `summed` is a multiple of 128.
    __device__ void begin(const bf16* w, int row_stride, int summed) {
        stride = row_stride;
        groups = summed / (2 * 16 * kAhead);
        from = w + (share() * summed / 2 + 2 * (lane_of() % 4)) * stride + 32 * strip() + 4 * (lane_of() / 4);
#pragma unroll
        for (int s = 0; s < kAhead; ++s) fetch(s);
    }
    /// Rows 2 c, 2 c + 1, 2 c + 8 and 2 c + 9 of the next step.
    __device__ void fetch(int s) {
#pragma unroll
        for (int i = 0; i < 4; ++i)  // from L2: what L1 holds may be older than the last update
            weights[s][i] = __ldcg(reinterpret_cast<const uint2*>(from + (i % 2 + i / 2 * 8) * stride));
        from += 16 * stride;
    }
    __device__ void multiply(const bf16* rows, int pitch) {
        const bf16* left_at = rows + lane_of() % 16 * pitch + lane_of() / 16 * 8 + share() * groups * 16 * kAhead;
        clear(sums);
#pragma unroll 1
        for (int group = 1; group <= groups; ++group) {
#pragma unroll
            for (int s = 0; s < kAhead; ++s, left_at += 16) {
                std::uint32_t left[kAll][4], right[4][2];
#pragma unroll
                for (int m = 0; m < kAll; ++m) load_matrices(left[m], left_at + 16 * m * pitch);
                const uint2(&w)[4] = weights[s];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    right[0][half] = __byte_perm(w[2 * half].x, w[2 * half + 1].x, 0x5410);
                    right[1][half] = __byte_perm(w[2 * half].x, w[2 * half + 1].x, 0x7632);
                    right[2][half] = __byte_perm(w[2 * half].y, w[2 * half + 1].y, 0x5410);
                    right[3][half] = __byte_perm(w[2 * half].y, w[2 * half + 1].y, 0x7632);
                }
                if (group < groups) fetch(s);
#pragma unroll
                for (int m = 0; m < kAll; ++m)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        mma_bf16(sums[m][j], left[m][0], left[m][1], left[m][2], left[m][3], right[j][0], right[j][1]);
            }
        }
    }
    /// Behind it sums[0 .. kTiles - 1] are the owned rows'. The block synchronises; `scratch` holds 4 kTiles float4 per thread,
    /// which must have been read by then.
    __device__ void join(float4* scratch) {
        constexpr int kSent = 4 * kTiles;
        const bool upper = share() == 1;
        float4* mine = scratch + warp_of() * kSent * 32 + lane_of();
        const float4* other = scratch + (warp_of() ^ kStrips) * kSent * 32 + lane_of();
#pragma unroll
        for (int i = 0; i < kSent; ++i) {
            float(&low)[4] = sums[i / 4][i % 4];
            const float(&high)[4] = sums[kTiles + i / 4][i % 4];
            mine[32 * i] = upper ? make_float4(low[0], low[1], low[2], low[3]) : make_float4(high[0], high[1], high[2], high[3]);
#pragma unroll
            for (int e = 0; e < 4; ++e) low[e] = upper ? high[e] : low[e];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kSent; ++i) {
            const float4 more = other[32 * i];
            float(&own)[4] = sums[i / 4][i % 4];
            own[0] += more.x, own[1] += more.y, own[2] += more.z, own[3] += more.w;
        }
    }
    /// The lane's eight columns of row(m, half).
    __device__ void values(int m, int half, float (&v)[8]) const {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[j] = sums[m][j][2 * half];
            v[4 + j] = sums[m][j][2 * half + 1];
        }
    }
};

__device__ inline float warp_total(float v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

/// What the norm's way back reads besides its rows, in shared memory; zeros beyond the sequence.
struct NormRows {
    const bf16* x;                ///< [kOwn, kPitch<kWidth>], what was normalised
    const float *mean, *inv_std;  ///< [kOwn]
};
constexpr int kNormSums = 3 * kWidth;  ///< of dy * xhat, of dy, of the result as it is stored

/// d: dy in, the gradient of x out, kOwn rows in shared memory and, the first `rows` of them, in `out` too. A warp has
/// neighbouring rows, a lane four columns. `scratch` [kWarps, kNormSums] gets each warp's sums over its rows.
template <int kOwn>
__device__ void norm_back(bf16* d, const NormRows& norm, const float (&gamma)[4], bf16* out, std::int64_t stride, int rows,
                          float* scratch) {
    constexpr int kEach = kOwn / kWarps;
    const int column = 4 * lane_of();
    float dots[4] = {}, totals[4] = {}, stored[4] = {};
#pragma unroll 2
    for (int r = 0; r < kEach; ++r) {
        const int row = kEach * warp_of() + r;
        auto* at = reinterpret_cast<Run<bf16, 4>*>(d + row * kPitch<kWidth> + column);
        const auto x = load_as_stored<4>(norm.x + row * kPitch<kWidth> + column);
        const Run<bf16, 4> dy = *at;
        const float mean = norm.mean[row], inv = norm.inv_std[row];
        float v[4], hat[4], sum = 0, dot = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            v[i] = __bfloat162float(dy.v[i]);
            hat[i] = (__bfloat162float(x.v[i]) - mean) * inv;
            totals[i] += v[i];
            dots[i] += v[i] * hat[i];
            sum += v[i] * gamma[i];
            dot += v[i] * gamma[i] * hat[i];
        }
        sum = warp_total(sum) / kWidth;
        dot = warp_total(dot) / kWidth;
        Run<bf16, 4> result;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            result.v[i] = __float2bfloat16_rn(inv * (v[i] * gamma[i] - sum - hat[i] * dot));
            stored[i] += __bfloat162float(result.v[i]);
        }
        *at = result;
        if (row < rows) store_as_stored(out + row * stride + column, result);
    }
    float* mine = scratch + warp_of() * kNormSums + column;
    store_run<4>(mine, dots);
    store_run<4>(mine + kWidth, totals);
    store_run<4>(mine + 2 * kWidth, stored);
}

/// One head in shared memory; rows that are not filled are zeros everywhere. Those rows' gradients come out as zeros: a causal
/// mask hides them from all others.
struct Head {
    const bf16 *queries, *keys, *values, *douts;  ///< [kRows, kHeadStride]
    const float *logsumexp, *deltas;              ///< [kRows]; delta as in ops/attention/attention.h
};

/// 16 rows of a head's gradient times `factor`, to rows of kPitch<kProjected>.
__device__ inline void put_head_rows(const Sums<1, kHeadWidth>& sums, float factor, bf16* to) {
#pragma unroll
    for (int n = 0; n < kHeadWidth / 8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            *reinterpret_cast<std::uint32_t*>(to + row_of(0, 2 * half) * kPitch<kProjected> + column_of(n, 0)) =
                pack(sums[0][n][2 * half] * factor, sums[0][n][2 * half + 1] * factor);
}

/// Gradients of queries [16 tile, + 16).
__device__ inline void query_back(const Head& head, int tile, float scale, bf16* to) {
    OwnRows<1, kHeadWidth> query, dout;
    query.load(head.queries + 16 * tile * kHeadStride);
    dout.load(head.douts + 16 * tile * kHeadStride);
    float level[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        level[half] = kLog2E * head.logsumexp[16 * tile + row_of(0, 2 * half)];
        delta[half] = head.deltas[16 * tile + row_of(0, 2 * half)];
    }
    Sums<1, kHeadWidth> sums;
    clear(sums);
#pragma unroll 1
    for (int n = 0; n <= tile; ++n) {
        const bf16 *keys = head.keys + 16 * n * kHeadStride, *values = head.values + 16 * n * kHeadStride;
        Sums<1, 16> weights, gradients;
        multiply_across<1, kHeadWidth, 16>(weights, query, keys + across_offset<kHeadWidth>());
        multiply_across<1, kHeadWidth, 16>(gradients, dout, values + across_offset<kHeadWidth>());
#pragma unroll
        for (int c = 0; c < 2; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& g = gradients[0][c][i];
                g = exp2_fast(fmaf(weights[0][c][i], scale * kLog2E, -level[i / 2])) * (g - delta[i / 2]);
                if (n == tile && column_of(c, i) > row_of(0, i)) g = 0;
            }
        std::uint32_t packed[1][4];
        pack_weights<1, 16>(packed, gradients, 0);
        multiply_along<1, kHeadWidth>(sums, packed, keys + along_offset<kHeadWidth>());
    }
    put_head_rows(sums, scale, to);
}

/// Gradients of keys and values [16 tile, + 16).
__device__ inline void key_back(const Head& head, int tile, float scale, bf16* keys, bf16* values) {
    const AttentionShape shape{kRows, kHeads, kHeadWidth, 0, true, scale};
    KeyGradient<1, kHeadWidth> gradient;
    gradient.begin(16 * tile, head.keys + 16 * tile * kHeadStride, head.values + 16 * tile * kHeadStride);
#pragma unroll 1
    for (int at = 16 * tile; at < kRows; at += 16)
        gradient.template take<16>(shape, at, head.queries + at * kHeadStride, head.douts + at * kHeadStride, head.logsumexp + at,
                                   head.deltas + at);
    put_head_rows(gradient.dkey, scale, keys);
    put_head_rows(gradient.dvalue, 1, values);
}

}  // namespace millrace::ops::cuda::layer_back
