#pragma once
// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"). A number is a pure
// function of who asks for it (seed, step, micro-batch, operator, element), so order of evaluation, threads, capture and resume
// cannot change it. Integers and uniforms are equal on CPU and GPU to the bit, normals to 2 ulp. Usable from g++ and nvcc.

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define MILLRACE_HD __host__ __device__
#else
#define MILLRACE_HD
#endif

namespace millrace::base {

struct Philox4 {
    uint32_t v[4];
};

struct WideProduct {
    uint32_t high, low;
};
/// On a GPU both halves come from one instruction when they are written so; from a product of 64 bits a third more are made (60
/// instead of 44 of ten rounds).
MILLRACE_HD constexpr WideProduct wide_product(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return {__umulhi(a, b), a * b};
#else
    const uint64_t product = uint64_t{a} * b;
    return {static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product)};
#endif
}

/// Ten rounds over counter[4] with key[2].
MILLRACE_HD constexpr Philox4 philox4x32(const uint32_t* counter, const uint32_t* key) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
        const WideProduct product0 = wide_product(0xD2511F53u, c0), product1 = wide_product(0xCD9E8D57u, c2);
        c0 = product1.high ^ c1 ^ k0;
        c1 = product1.low;
        c2 = product0.high ^ c3 ^ k1;
        c3 = product0.low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return Philox4{{c0, c1, c2, c3}};
}

/// The four words of elements 4 * block .. 4 * block + 3: counter {block, op, step, micro}, key {low, high half of seed}.
MILLRACE_HD constexpr Philox4 random_block(uint64_t seed, uint32_t step, uint32_t micro, uint32_t op, uint32_t block) {
    const uint32_t counter[4] = {block, op, step, micro};
    const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
    return philox4x32(counter, key);
}

/// 32 random bits of one element; `element` must be below 2^34. Loops over elements do better with random_block.
MILLRACE_HD constexpr uint32_t random_bits(uint64_t seed, uint32_t step, uint32_t micro, uint32_t op, uint64_t element) {
    return random_block(seed, step, micro, op, static_cast<uint32_t>(element >> 2)).v[element & 3];
}

/// [0, 1) on a grid of 2^-24: every value is exact in a float, 1 never occurs.
MILLRACE_HD constexpr float uniform01(uint32_t bits) { return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f); }

struct NormalPair {
    float first;
    float second;
};

/// Two independent N(0, 1) values from two words (Box-Muller), |value| < 6.8. Computed in double and rounded once: the math
/// libraries of host and device differ in the last bits of a double, which moves the float by at most one ulp.
MILLRACE_HD inline NormalPair normal_pair(uint32_t bits0, uint32_t bits1) {
    const double u = (static_cast<double>(bits0) + 0.5) * (1.0 / 4294967296.0);  // never 0, so the logarithm is finite
    const double angle = static_cast<double>(bits1) * (6.283185307179586476925 / 4294967296.0);
    const double radius = sqrt(-2.0 * log(u));
    return NormalPair{static_cast<float>(radius * cos(angle)), static_cast<float>(radius * sin(angle))};
}

/// N(0, 1) of one element: words (0, 1) of its block make elements 0 and 1, words (2, 3) make 2 and 3.
MILLRACE_HD inline float random_normal(uint64_t seed, uint32_t step, uint32_t micro, uint32_t op, uint64_t element) {
    const Philox4 block = random_block(seed, step, micro, op, static_cast<uint32_t>(element >> 2));
    const uint32_t at = static_cast<uint32_t>(element & 2);
    const NormalPair pair = normal_pair(block.v[at], block.v[at + 1]);
    return (element & 1) != 0 ? pair.second : pair.first;
}

/// A random bijection of [0, n), evaluated at any position without a table: an eight-round balanced Feistel network over the
/// smallest even number of bits that holds n; values outside [0, n) walk on along their cycle (fewer than 4 steps on average).
struct Shuffle {
    uint32_t n;
    uint32_t half_bits;
    uint32_t round_key[8];
};

/// The order of `n` elements (n < 2^32) in an epoch. Key it with a member's seed; the counter words 2 and 3 are this function's
/// own and cannot meet those of random_block before step 0x73687566.
MILLRACE_HD constexpr Shuffle make_shuffle(uint64_t seed, uint32_t epoch, uint32_t n) {
    Shuffle shuffle{n, 1, {}};
    for (uint32_t part = 0; part < 2; ++part) {
        const Philox4 words = random_block(seed, 0x73687566u, 0x666c6531u, epoch, part);
        for (uint32_t i = 0; i < 4; ++i) shuffle.round_key[4 * part + i] = words.v[i];
    }
    // Behind the keys, which do not wait for n where that is loaded.
    if (n > 1) shuffle.half_bits = static_cast<uint32_t>(std::bit_width(n - 1) + 1) / 2;
    return shuffle;
}

/// Where `position` (< n) goes.
MILLRACE_HD constexpr uint32_t shuffled_index(const Shuffle& shuffle, uint32_t position) {
    if (shuffle.n < 2) return 0;
    const uint32_t mask = (uint32_t{1} << shuffle.half_bits) - 1;
    uint32_t value = position;
    do {
        uint32_t left = value >> shuffle.half_bits, right = value & mask;
        for (int round = 0; round < 8; ++round) {
            uint32_t mixed = (right + 1) * 0x9E3779B1u ^ shuffle.round_key[round];
            mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6Bu;
            mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35u;
            const uint32_t next = left ^ ((mixed ^ (mixed >> 16)) & mask);
            left = right;
            right = next;
        }
        value = (left << shuffle.half_bits) | right;
    } while (value >= shuffle.n);
    return value;
}

/// The same for a single position; a loop should keep the Shuffle.
MILLRACE_HD constexpr uint32_t shuffled_index(uint64_t seed, uint32_t epoch, uint32_t position, uint32_t n) {
    return shuffled_index(make_shuffle(seed, epoch, n), position);
}

}  // namespace millrace::base
