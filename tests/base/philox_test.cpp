#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace millrace::base {
namespace {

void expect_words(const Philox4& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    EXPECT_EQ(got.v[0], a);
    EXPECT_EQ(got.v[1], b);
    EXPECT_EQ(got.v[2], c);
    EXPECT_EQ(got.v[3], d);
}

// The three known answers that the Random123 distribution publishes for philox4x32 with 10 rounds.
TEST(Philox, ZerosGiveThePublishedAnswer) {
    const uint32_t counter[4] = {0, 0, 0, 0}, key[2] = {0, 0};
    expect_words(philox4x32(counter, key), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
}

TEST(Philox, OnesGiveThePublishedAnswer) {
    const uint32_t counter[4] = {~0u, ~0u, ~0u, ~0u}, key[2] = {~0u, ~0u};
    expect_words(philox4x32(counter, key), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
}

TEST(Philox, DigitsOfPiGiveThePublishedAnswer) {
    const uint32_t counter[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, key[2] = {0xa4093822, 0x299f31d0};
    expect_words(philox4x32(counter, key), 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, RandomBitsPlaceEveryArgumentInItsWord) {
    const uint64_t seed = 0x299f31d0a4093822u;
    for (uint32_t lane = 0; lane < 4; ++lane) {
        const uint32_t expected[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
        EXPECT_EQ(random_bits(seed, 0x13198a2e, 0x03707344, 0x85a308d3, uint64_t{0x243f6a88} * 4 + lane), expected[lane]);
    }
}

TEST(Philox, UniformCoversTheHalfOpenUnitInterval) {
    EXPECT_EQ(uniform01(0), 0.0f);
    EXPECT_EQ(uniform01(255), 0.0f);
    EXPECT_EQ(uniform01(256), std::ldexp(1.0f, -24));
    EXPECT_EQ(uniform01(0x80000000u), 0.5f);
    EXPECT_LT(uniform01(~0u), 1.0f);
    EXPECT_EQ(uniform01(~0u), 1.0f - std::ldexp(1.0f, -24));
}

TEST(Philox, UniformHasTheMomentsOfAUniform) {
    double sum = 0, squares = 0;
    const int n = 100003;
    for (int i = 0; i < n; ++i) {
        const double u = uniform01(random_bits(7, 1, 0, 3, static_cast<uint64_t>(i)));
        sum += u;
        squares += u * u;
    }
    EXPECT_NEAR(sum / n, 0.5, 0.005);
    EXPECT_NEAR(squares / n, 1.0 / 3, 0.005);
}

TEST(Philox, NormalIsFiniteAtTheEdgesOfItsWords) {
    for (uint32_t a : {0u, 1u, 0x80000000u, ~0u})
        for (uint32_t b : {0u, 1u, 0x40000000u, 0x80000000u, ~0u}) {
            const NormalPair pair = normal_pair(a, b);
            EXPECT_TRUE(std::isfinite(pair.first) && std::isfinite(pair.second)) << a << ' ' << b;
            EXPECT_LT(std::hypot(pair.first, pair.second), 6.8f);
        }
    EXPECT_NEAR(normal_pair(0, 0).first, 6.7637, 1e-3);  // sqrt(2 * 33 ln 2), the largest there is
}

TEST(Philox, NormalHasTheMomentsOfANormal) {
    double sum = 0, squares = 0, fourth = 0, neighbours = 0;
    const int n = 100003;
    float previous = 0;
    int beyond_two = 0;
    for (int i = 0; i < n; ++i) {
        const float z = random_normal(99, 5, 1, 2, static_cast<uint64_t>(i));
        sum += z;
        squares += double{z} * z;
        fourth += double{z} * z * z * z;
        neighbours += double{z} * previous;
        beyond_two += std::abs(z) > 2.0f ? 1 : 0;
        previous = z;
    }
    EXPECT_NEAR(sum / n, 0.0, 0.015);
    EXPECT_NEAR(squares / n, 1.0, 0.02);
    EXPECT_NEAR(fourth / n, 3.0, 0.15);
    EXPECT_NEAR(neighbours / n, 0.0, 0.015);
    EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 0.003);
}

TEST(Philox, NormalElementsShareABlockPairwise) {
    const Philox4 block = random_block(11, 2, 0, 4, 9);
    EXPECT_EQ(random_normal(11, 2, 0, 4, 36), normal_pair(block.v[0], block.v[1]).first);
    EXPECT_EQ(random_normal(11, 2, 0, 4, 37), normal_pair(block.v[0], block.v[1]).second);
    EXPECT_EQ(random_normal(11, 2, 0, 4, 38), normal_pair(block.v[2], block.v[3]).first);
    EXPECT_EQ(random_normal(11, 2, 0, 4, 39), normal_pair(block.v[2], block.v[3]).second);
}

std::vector<uint32_t> order(uint64_t seed, uint32_t epoch, uint32_t n) {
    const Shuffle shuffle = make_shuffle(seed, epoch, n);
    std::vector<uint32_t> out(n);
    for (uint32_t i = 0; i < n; ++i) out[i] = shuffled_index(shuffle, i);
    return out;
}

TEST(Shuffle, EveryIndexAppearsOnce) {
    for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 10u, 16u, 17u, 97u, 1000u, 1024u, 54000u, 65537u})
        for (uint32_t epoch : {0u, 1u, 77u}) {
            std::vector<int> seen(n, 0);
            for (uint32_t value : order(42, epoch, n)) {
                ASSERT_LT(value, n);
                ++seen[value];
            }
            for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(seen[i], 1) << "n " << n << " index " << i;
        }
}

TEST(Shuffle, LargestSizesStayInRange) {
    for (uint32_t n : {0x80000001u, 0xFFFFFFFFu}) {
        const Shuffle shuffle = make_shuffle(3, 0, n);
        for (uint32_t i = 0; i < 1000; ++i) ASSERT_LT(shuffled_index(shuffle, n - 1 - i), n);
    }
}

TEST(Shuffle, EpochAndSeedChangeTheOrder) {
    const auto base = order(42, 0, 1000);
    EXPECT_EQ(base, order(42, 0, 1000));
    for (const auto& other : {order(42, 1, 1000), order(43, 0, 1000), order(42 + (uint64_t{1} << 32), 0, 1000)}) {
        int equal = 0;
        for (size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i] ? 1 : 0;
        EXPECT_LT(equal, 12);  // two random orders agree in one place on average
    }
}

TEST(Shuffle, SinglePositionFormAgreesWithTheLoop) {
    const auto all = order(5, 3, 97);
    for (uint32_t i = 0; i < 97; ++i) EXPECT_EQ(shuffled_index(5, 3, i, 97), all[i]);
}

// Chi-square of (tenth of the positions) x (tenth of the values): 81 degrees of freedom, 99.99 % below 140.
TEST(Shuffle, PositionsAndValuesAreIndependent) {
    for (uint32_t n : {1000u, 54000u})
        for (uint32_t epoch = 0; epoch < 4; ++epoch) {
            double count[10][10] = {};
            const auto values = order(17, epoch, n);
            for (uint32_t i = 0; i < n; ++i) count[i * 10ull / n][values[i] * 10ull / n] += 1;
            const double expected = n / 100.0;
            double chi = 0;
            for (const auto& row : count)
                for (double c : row) chi += (c - expected) * (c - expected) / expected;
            EXPECT_LT(chi, 140) << n << ' ' << epoch;
            EXPECT_GT(chi, 35) << "too even to be random: " << n << ' ' << epoch;
        }
}

// Over many epochs each of three elements visits each place equally often; six orders, all of them seen.
TEST(Shuffle, SmallSizesReachEveryOrder) {
    int seen[27] = {};
    for (uint32_t epoch = 0; epoch < 6000; ++epoch) {
        const auto o = order(1, epoch, 3);
        ++seen[o[0] * 9 + o[1] * 3 + o[2]];
    }
    int orders = 0;
    for (int count : seen)
        if (count > 0) {
            ++orders;
            EXPECT_NEAR(count, 1000, 300);
        }
    EXPECT_EQ(orders, 6);
}

TEST(Shuffle, NeighboursDoNotStayTogether) {
    const auto values = order(8, 2, 54000);
    int adjacent = 0;
    for (size_t i = 1; i < values.size(); ++i) adjacent += values[i] == values[i - 1] + 1 ? 1 : 0;
    EXPECT_LT(adjacent, 10);
}

}  // namespace
}  // namespace millrace::base
