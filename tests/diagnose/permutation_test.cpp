#include "diagnose/compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace millrace::diagnose {
namespace {

using Values = std::vector<double>;

TEST(Midranks, EqualValuesShareTheirRanks) {
    EXPECT_EQ(midranks(Values{}), Values{});
    EXPECT_EQ(midranks(Values{30, 10, 20}), (Values{3, 1, 2}));
    EXPECT_EQ(midranks(Values{5, 1, 5, 5}), (Values{3, 1, 3, 3}));
}

TEST(PermutationTest, CountsByHand) {
    // Of the 20 ways to deal six values to two sides, two part them wholly.
    const auto parted = permutation_test(Values{1, 2, 3}, Values{4, 5, 6});
    EXPECT_TRUE(parted.exact);
    EXPECT_NEAR(parted.p, 2.0 / 20, 1e-12);
    EXPECT_NEAR(permutation_test(Values{1, 2, 4}, Values{3, 5, 6}).p, 4.0 / 20, 1e-12);
    EXPECT_NEAR(permutation_test(Values{7, 7, 7}, Values{7, 7, 7}).p, 1, 1e-12);
    EXPECT_EQ(permutation_test(Values{}, Values{1}).p, 1);
}

TEST(PermutationTest, ManyValuesGiveWhatEveryPermutationWould) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    for (const double shift : {0.0, 0.3, 0.7}) {
        Values before(30), after(30);
        for (double& each : before) each = normal(random);
        for (double& each : after) each = normal(random) + shift;
        const auto exact = permutation_test(before, after);
        before.push_back(quantile(before, 0.5));
        const auto other = permutation_test(before, after);
        EXPECT_TRUE(exact.exact);
        EXPECT_FALSE(other.exact);
        EXPECT_NEAR(std::log(other.p), std::log(exact.p), 0.25) << exact.p;
    }
}

TEST(PermutationTest, EqualSidesAreToldApartAsOftenAsPSays) {
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    int below = 0;
    constexpr int kRounds = 1000;
    for (int round = 0; round < kRounds; ++round) {
        Values before(12), after(12);
        for (double& each : before) each = normal(random);
        for (double& each : after) each = normal(random);
        below += permutation_test(before, after).p < 0.05;
    }
    EXPECT_GT(below, kRounds * 0.03);
    EXPECT_LT(below, kRounds * 0.07);
}

TEST(SmallestP, SevenOnASideAreEnoughForAThousandth) {
    EXPECT_NEAR(smallest_p(7, 7), 2.0 / 3432, 1e-12);
    EXPECT_NEAR(smallest_p(6, 6), 2.0 / 924, 1e-12);
    EXPECT_NEAR(smallest_p(1, 1), 1, 1e-12);
    EXPECT_EQ(smallest_p(0, 100), 1);
    EXPECT_NEAR(permutation_test(Values{1, 2, 3, 4, 5, 6, 7}, Values{8, 9, 10, 11, 12, 13, 14}).p, smallest_p(7, 7), 1e-12);
}

}  // namespace
}  // namespace millrace::diagnose
