#pragma once
// What the fused dense layers in wide tiles (ops/tile/wide_product.cuh) do with a thread's four rows.

#include "ops/cuda/vector.cuh"
#include "ops/tile/wide_product.cuh"

namespace millrace::ops::cuda::wide {

/// Sums over the 32 rows of a warp; v: the thread's sums over its own four. Every thread gets its columns'.
template <class T>
__device__ void sum_over_rows(float (&v)[T::kRun]) {
#pragma unroll T::kRolled ? 1 : 3
    for (int d = 4; d <= 16; d *= 2)
#pragma unroll
        for (int j = 0; j < T::kRun; ++j) v[j] += __shfl_xor_sync(0xffffffffu, v[j], d);
}

/// What was read of memory before is read again.
__device__ inline void forget_memory() { asm volatile("" ::: "memory"); }

/// The dropout of a thread's four rows, a bit each. It is drawn while operands are under way.
template <class T>
struct Mask {
    static constexpr int kRun = T::kRun;
    std::uint32_t kept = 0;
    float factor = 1;
    bool drops = false;

    /// first: the element of the first of the rows, which are `step` elements apart.
    __device__ void draw(const DropoutKey& key, std::uint64_t first, std::uint64_t step) {
        const DropoutRule rule = dropout_rule(key);
        factor = rule.factor;
        drops = rule.threshold != 0;
        if (!drops) return;
#pragma unroll T::kRolled ? 1 : 4
        for (int i = 0; i < 4; ++i) {
            const std::uint64_t element = first + i * step;
            const int skipped = static_cast<int>(element & 3);  // of rows that do not begin with a random block
            std::uint32_t row = 0;
            const auto draw_block = [&](int b) {
                const auto block = static_cast<std::uint32_t>(element >> 2) + static_cast<std::uint32_t>(b);
                const auto four = base::random_block(key.seed, key.step, key.micro, key.op, block);
                std::uint32_t bits = 0;
#pragma unroll
                for (int n = 0; n < 4; ++n) bits |= four.v[n] >= rule.threshold ? 1u << n : 0u;
                row |= bits << (4 * b);
            };
            if constexpr (T::kRolled) {
                const int blocks = kRun / 4 + (skipped != 0 ? 1 : 0);
#pragma unroll 1
                for (int b = 0; b < blocks; ++b) draw_block(b);
            } else {
#pragma unroll
                for (int b = 0; b < kRun / 4; ++b) draw_block(b);
                if (skipped != 0) draw_block(kRun / 4);
            }
            kept |= (row >> skipped & ((1u << kRun) - 1)) << (kRun * i);
        }
    }
    /// Of the row that is next.
    __device__ void apply(float (&v)[kRun]) {
        if (!drops) return;
#pragma unroll
        for (int j = 0; j < kRun; ++j) v[j] *= (kept >> j & 1u) != 0 ? factor : 0;
        kept >>= kRun;
    }
};

/// Row 0 of a thread's four; the others move up, so that a loop over them needs no index into registers.
template <int kTiles>
__device__ void take_row(Sums<kTiles>& acc, float (&v)[2 * kTiles]) {
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) {
        const int t = j / 2, e = j % 2;
        v[j] = acc[0][t][e];
        acc[0][t][e] = acc[0][t][2 + e];
        acc[0][t][2 + e] = acc[1][t][e];
        acc[1][t][e] = acc[1][t][2 + e];
    }
}

/// The last row, which take_row has left free.
template <int kTiles>
__device__ void put_row(Sums<kTiles>& acc, const float (&v)[2 * kTiles]) {
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) acc[1][j / 2][2 + j % 2] = v[j];
}

/// kRun values to memory, of which `count` exist. whole: `at` is a multiple of their size.
template <int kRun>
__device__ void store_words(void* at, const std::uint32_t (&words)[kRun / 2], int count, bool whole) {
    if (whole && count >= kRun) {
        if constexpr (kRun == 8)
            *reinterpret_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
        else
            *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
        return;
    }
    std::uint64_t low = words[0] | std::uint64_t{words[1]} << 32, high = 0;
    if constexpr (kRun == 8) high = words[2] | std::uint64_t{words[3]} << 32;
    auto* bits = reinterpret_cast<unsigned short*>(at);
#pragma unroll 1
    for (int j = 0; j < min(count, kRun); ++j) {
        bits[j] = static_cast<unsigned short>(low);
        low = low >> 16 | high << 48;
        high >>= 16;
    }
}
template <class E, int kRun>
__device__ void pack_run(const float (&v)[kRun], std::uint32_t (&words)[kRun / 2]) {
#pragma unroll
    for (int j = 0; j < kRun / 2; ++j) words[j] = pack<E>(v[2 * j], v[2 * j + 1]);
}
/// Value j of a run.
template <class E>
__device__ inline float value_of(const std::uint32_t* words, int j) {
    return j % 2 == 0 ? low_of<E>(words[j / 2]) : high_of<E>(words[j / 2]);
}

}  // namespace millrace::ops::cuda::wide
