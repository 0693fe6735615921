#pragma once
// Pieces of the way back through a layer over one short sequence of at most kRows positions. A block has kOwn of these rows in
// shared memory (T: bf16 or f16) from the first gradient to the last: all of them, or half where kParts = 2 blocks form a
// cluster. Everything there is a tile: rows of kWidth columns, kPitch elements apart.

#include "ops/attention/flash_backward.cuh"
#include "ops/sequence/layer.cuh"

namespace millrace::ops::cuda::layer_back {

using sequence::kHeads, sequence::kHeadWidth, sequence::kRows, sequence::kWidth, sequence::Matrices;
constexpr int kProjected = 3 * kWidth;
constexpr int kPitch = kWidth + 8;  ///< eight rows of a fragment lie in different banks

/// A block that has a multiprocessor for itself has as many warps as two that share one.
template <int kParts>
constexpr int kWarps = kParts == 1 ? 8 : 16;
template <int kParts>
constexpr int kThreads = 32 * kWarps<kParts>;
template <int kParts>
constexpr int kOwn = kRows / kParts;
/// Rows that a block's threads cover with eight columns each.
template <int kParts>
constexpr int kRunRows = kThreads<kParts> / (kWidth / 8);

/// The thread's number, read anew in each phase: what is computed from it would otherwise stay in registers throughout the
/// kernel.
__device__ inline int thread_number() {
    auto thread = static_cast<int>(threadIdx.x);
#ifdef __CUDA_ARCH__
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
#endif
    return thread;
}

/// The thread's run of eight columns of the first kRunRows rows of a tile.
struct ThreadRun {
    int thread = thread_number(), row = thread / (kWidth / 8), column = thread % (kWidth / 8) * 8;
};

/// A lane's place in its warp's fragments.
struct Lane {
    int thread = thread_number(), lane = thread % 32, warp = thread / 32;
    int row = lane / 4, column = lane % 4 * 2;  ///< of the first sum of an 8 x 8 block

    /// Where its row of a 16 x 16 block of a tile begins: for fragments of the left side and for transposed ones of the right.
    [[nodiscard]] __device__ int along() const { return lane % 16 * kPitch + lane / 16 * 8; }
};

/// Begins copies of kCount rows of kWidth columns to a tile, eight elements a thread and row: zeros from row `rows` on.
template <int kParts, int kCount, class T>
__device__ inline void stage(const T* from, int stride, int rows, T* to) {
    constexpr int kStep = kRunRows<kParts>;
    const ThreadRun own;
    const std::uint32_t place = shared_address(to + own.row * kPitch + own.column);
    from += own.row * stride + own.column;
#pragma unroll
    for (int i = 0; i < kCount; i += kStep, from += kStep * stride) copy16(place + 2 * i * kPitch, from, own.row + i < rows);
}

/// The first `rows` rows of a tile to global memory.
template <int kParts, class T>
__device__ inline void copy_out(const T* from, T* to, int stride, int rows) {
    constexpr int kStep = kRunRows<kParts>;
    const ThreadRun own;
    from += own.row * kPitch + own.column;
    to += own.row * stride + own.column;
#pragma unroll
    for (int i = 0; i < kOwn<kParts>; i += kStep, to += kStep * stride)
        if (own.row + i < rows) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + i * kPitch);
}

/// Sums over a tile's rows to `to` [kWidth]: a product with a matrix of ones, 16 columns each by the first eight warps.
template <int kParts, class T>
__device__ inline void sum_columns(const T* tile, float* to) {
    constexpr std::uint32_t kOne = std::is_same_v<T, f16> ? 0x3c003c00u : 0x3f803f80u, kOnes[4] = {kOne, kOne, kOne, kOne};
    float sums[2][4] = {};
    const Lane self;
    if ((kWarps<kParts>) > 8 && self.warp >= 8) return;
    tile += self.along() + 16 * self.warp;
#pragma unroll
    for (int r = 0; r < kOwn<kParts>; r += 16) {
        std::uint32_t right[4];
        load_transposed(right, tile + r * kPitch);
        mma16<T>(sums[0], kOnes, right[0], right[1]);
        mma16<T>(sums[1], kOnes, right[2], right[3]);
    }
    if (self.lane >= 4) return;
    to += 16 * self.warp + 2 * self.lane;
    *reinterpret_cast<float2*>(to) = make_float2(sums[0][0], sums[0][1]);
    *reinterpret_cast<float2*>(to + 8) = make_float2(sums[1][0], sums[1][1]);
}

/// Rows of a tile times weights [summed, kWidth]: a warp has half of the rows and a strip of 8 kBlocks columns.
template <class T, int kParts>
struct RowsProduct {
    static constexpr int kTiles = kOwn<kParts> / 32, kStrips = kWarps<kParts> / 2;  ///< tiles of 16 rows
    static constexpr int kBlocks = kWidth / 8 / kStrips;
    float sums[kTiles][kBlocks][4];

    [[nodiscard]] static __device__ int strip(const Lane& self) { return self.warp % kStrips; }
    /// A lane's row `half` (of two) of tile m,
    [[nodiscard]] static __device__ int row(const Lane& self, int m, int half) {
        return 16 * (kTiles * (self.warp / kStrips) + m) + 8 * half + self.row;
    }
    /// and where the first of its two columns of sums n lies in a tile, whose pair is sums[m][n][2 half] and the next.
    [[nodiscard]] static __device__ int place(const Lane& self, int m, int half, int n) {
        return row(self, m, half) * kPitch + 8 * (kBlocks * strip(self) + n) + self.column;
    }
    /// Where a lane reads its fragments of the rows and of the weights.
    [[nodiscard]] static __device__ int left_place(const Lane& self) {
        return self.along() + 16 * kTiles * (self.warp / kStrips) * kPitch;
    }
    [[nodiscard]] static __device__ int right_place(const Lane& self) { return self.along() + 8 * kBlocks * strip(self); }
    /// Adds kSummed columns of rows times as many rows of weights, both from the lane's places on.
    template <int kSummed>
    __device__ void take(const T* left, const T* weights) {
#pragma unroll
        for (int k = 0; k < kSummed; k += 16) {
            std::uint32_t a[kTiles][4], b[kBlocks / 2][4];
#pragma unroll
            for (int m = 0; m < kTiles; ++m) load_matrices(a[m], left + 16 * m * kPitch + k);
#pragma unroll
            for (int n = 0; n < kBlocks / 2; ++n) load_transposed(b[n], weights + k * kPitch + 16 * n);
            multiply_fragments<T>(sums, a, b);
        }
    }
};

/// What the norm's way back reads besides dy, in shared memory; zeros beyond the sequence.
template <class T>
struct NormRows {
    const T* x;                   ///< a tile: what was normalised
    const float *mean, *inv_std;  ///< [kOwn]
};

/// The norm's way back: dy in `from`, the gradient of x to `to` and, the first `rows` rows, to `out` too. Eight lanes have a row,
/// runs lane % 8 and 8 + lane % 8 of eight columns. `scratch` [8, kWidth] gets sums of dy * xhat, of the rows of each of the
/// first eight warps.
template <int kParts, class T>
__device__ void norm_back(const T* from, const NormRows<T>& norm, T* to, const float* gamma, T* out, int stride, int rows,
                          float* scratch) {
    const Lane self;
    if ((kWarps<kParts>) > 8 && self.warp >= 8) return;
    const int lane = self.lane % 8;
    float scale[16], dots[16] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float4 four = __ldcg(reinterpret_cast<const float4*>(gamma + i / 2 * 64 + 8 * lane) + i % 2);
        scale[4 * i] = four.x, scale[4 * i + 1] = four.y, scale[4 * i + 2] = four.z, scale[4 * i + 3] = four.w;
    }
#pragma unroll 1
    for (int row = 4 * self.warp + self.lane / 8; row < kOwn<kParts>; row += 32) {
        const int at = row * kPitch + 8 * lane;
        const float inv = norm.inv_std[row], shift = -norm.mean[row] * inv;
        float v[16], hat[16], sum = 0, dot = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            spread<T>(*reinterpret_cast<const uint4*>(from + at + 64 * half), v + 8 * half);
            spread<T>(*reinterpret_cast<const uint4*>(norm.x + at + 64 * half), hat + 8 * half);
        }
#pragma unroll
        for (int c = 0; c < 16; ++c) {
            hat[c] = fmaf(hat[c], inv, shift);
            dots[c] = fmaf(v[c], hat[c], dots[c]);
            v[c] *= scale[c];
            sum += v[c];
            dot = fmaf(v[c], hat[c], dot);
        }
#pragma unroll
        for (int d = 1; d < 8; d *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, d);
            dot += __shfl_xor_sync(0xffffffffu, dot, d);
        }
        sum *= -inv / kWidth;
        dot *= -inv / kWidth;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            std::uint32_t pairs[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int c = 8 * half + 2 * p;
                pairs[p] = pack<T>(fmaf(hat[c], dot, fmaf(v[c], inv, sum)), fmaf(hat[c + 1], dot, fmaf(v[c + 1], inv, sum)));
            }
            const uint4 eight = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
            *reinterpret_cast<uint4*>(to + at + 64 * half) = eight;
            if (row < rows) *reinterpret_cast<uint4*>(out + row * stride + 8 * lane + 64 * half) = eight;
        }
    }
    // Four lanes have the same columns: each of them keeps four of the sixteen sums.
    const bool upper = self.lane >= 16, odd = self.lane / 8 % 2 == 1;
    float eight[8], four[4];
#pragma unroll
    for (int c = 0; c < 8; ++c)
        eight[c] = (upper ? dots[8 + c] : dots[c]) + __shfl_xor_sync(0xffffffffu, upper ? dots[c] : dots[8 + c], 16);
#pragma unroll
    for (int c = 0; c < 4; ++c)
        four[c] = (odd ? eight[4 + c] : eight[c]) + __shfl_xor_sync(0xffffffffu, odd ? eight[c] : eight[4 + c], 8);
    store_run<4>(scratch + self.warp * kWidth + 64 * upper + 8 * lane + 4 * odd, four);
}

/// How a head lies in tiles, for the kernels of attention.
struct HeadForm {
    static constexpr int kWidth = kHeadWidth, kTiles = 1, kUnroll = kWidth / 16, slice = 0;
    static constexpr bool kHeld = true, kAny = false;
    __device__ static constexpr int columns() { return kWidth; }
    __device__ static constexpr int stride() { return kPitch; }
};

/// One head: its columns of tiles, rows that are not filled are zeros.
template <class T>
struct Head {
    const T *queries, *keys, *values, *douts;
    const float *levels, *deltas;  ///< [kRows]: logsumexp; delta as in ops/attention/attention.h
    AttentionShape shape;
    int filled;
};

/// 16 rows of a head's gradient as they are stored.
template <class T>
struct HeadRows {
    std::uint32_t pairs[kHeadWidth / 8][2];
    __device__ void keep(const Sums<1, kHeadWidth>& sums, float factor) {
#pragma unroll
        for (int n = 0; n < kHeadWidth / 8; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                pairs[n][half] = pack<T>(sums[0][n][2 * half] * factor, sums[0][n][2 * half + 1] * factor);
    }
    __device__ void put(T* to, const Lane& self) const {
#pragma unroll
        for (int n = 0; n < kHeadWidth / 8; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                *reinterpret_cast<std::uint32_t*>(to + (self.row + 8 * half) * kPitch + 8 * n + self.column) = pairs[n][half];
    }
};

/// Gradients of queries [16 tile, + 16).
template <class T>
__device__ inline void query_back(const Head<T>& head, int tile, HeadRows<T>& to) {
    constexpr HeadForm form;
    const int own = 16 * tile * kPitch;
    QueryGradient<T, HeadForm> gradient;
    gradient.begin(
        form, head.shape, head.filled, 16 * tile, head.queries + own, head.douts + own, [&](int q) { return head.levels[q]; },
        head.deltas + 16 * tile);
#pragma unroll 1
    for (int at = 0; at <= 16 * tile; at += 16)
        gradient.template take<16>(form, head.shape, head.filled, at, head.keys + at * kPitch, head.values + at * kPitch);
    to.keep(gradient.sums, head.shape.scale);
}

/// Gradients of keys and values [16 tile, + 16).
template <class T>
__device__ inline void key_back(const Head<T>& head, int tile, HeadRows<T>& keys, HeadRows<T>& values) {
    constexpr HeadForm form;
    KeyGradient<T, HeadForm> gradient;
    gradient.begin(form, 16 * tile, head.keys + 16 * tile * kPitch, head.values + 16 * tile * kPitch);
#pragma unroll 1
    for (int at = 16 * tile; at < head.filled; at += 16)
        gradient.template take<16>(form, head.shape, at, head.queries + at * kPitch, head.douts + at * kPitch, head.levels + at,
                                   head.deltas + at);
    keys.keep(gradient.dkey, head.shape.scale);
    values.keep(gradient.dvalue, 1);
}

}  // namespace millrace::ops::cuda::layer_back
