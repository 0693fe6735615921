// How far runs of one program lie apart: assumed, or measured by several recordings.

#include "diagnose/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace millrace::diagnose {
namespace {

/// A recording of `blocks` half seconds at `speed` steps per second, whose host does `host` of a step.
CompareSide recording(double speed, std::uint64_t seed, double host = 0.95, int blocks = 14, double noise = 0.005) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    CompareSide side;
    for (int at = 0; at < blocks; ++at)
        side.blocks.push_back(
            {at * Time{500'000'000}, (at + 1) * Time{500'000'000}, 0.5 * speed * std::exp(noise * normal(random))});
    side.breakdown_ms.emplace();
    (*side.breakdown_ms)[static_cast<std::size_t>(Owner::kCompute)] = 10 * (1 - host);
    (*side.breakdown_ms)[static_cast<std::size_t>(Owner::kLaunchBound)] = 10 * host;
    return side;
}

/// Recordings of one program, whose processes differ by `spread`.
std::vector<CompareSide> recordings(std::size_t count, double speed, double spread, std::uint64_t seed, double host = 0.95) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<CompareSide> sides;
    for (std::size_t at = 0; at < count; ++at)
        sides.push_back(recording(speed * std::exp(spread * normal(random)), random(), host));
    return sides;
}

TEST(CompareRuns, WhatNoGpuDoesIsTheHosts) {
    EXPECT_NEAR(host_share(recording(100, 1, 0.3)), 0.3, 1e-12);
    EXPECT_EQ(host_share({}), 0);
    CompareSide odd;
    odd.breakdown_ms.emplace();
    EXPECT_EQ(host_share(odd), 0) << "no step";
    (*odd.breakdown_ms)[0] = std::numeric_limits<double>::infinity();
    EXPECT_EQ(host_share(odd), 0);
}

TEST(CompareRuns, OneRecordingOfEachSideShowsNoMoreThanRunsDifferBy) {
    const CompareSide before = recording(100, 1), after = recording(115, 2);
    const Comparison comparison = compare(before, after);
    EXPECT_LT(*comparison.p, 0.001);
    EXPECT_NEAR(comparison.run_spread, 0.076, 1e-12);
    EXPECT_FALSE(has_run_spread(comparison));
    EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
    EXPECT_FALSE(is_slower_by(compare(after, before), 0.05));
    EXPECT_EQ(compare(before, recording(130, 3)).verdict, Verdict::kBetter);
    CompareSettings own;
    own.run_spread = 0;  // a machine of one's own
    EXPECT_EQ(compare(before, after, own).verdict, Verdict::kBetter);
    // What the GPU sets the pace of has no such spread; the side with more of the host's counts.
    EXPECT_EQ(compare(recording(100, 1, 0.05), recording(105, 2, 0.05)).verdict, Verdict::kBetter);
    EXPECT_EQ(compare(recording(100, 1, 0.4), recording(105, 2, 0.05)).verdict, Verdict::kNoDifference);
    EXPECT_EQ(compare(recording(100, 1, 0.05), recording(105, 2, 0.4)).verdict, Verdict::kNoDifference);
}

TEST(CompareRuns, RecordingsOfOneProgramShowNoDifference) {
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < 500; ++seed)
        for (const std::size_t count : {2u, 3u, 5u})
            wrong += compare(recordings(count, 100, 0.06, 2 * seed), recordings(count, 100, 0.06, 2 * seed + 1)).verdict !=
                     Verdict::kNoDifference;
    EXPECT_LE(wrong, 15) << "of 1,500";  // assumed are 8 %, of which three are 2.7 times what 6 % make of a difference
}

TEST(CompareRuns, SteadyRecordingsShowSmallChanges) {
    int seen = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const auto before = recordings(5, 100, 0.005, 2 * seed), after = recordings(5, 104, 0.005, 2 * seed + 1);
        const Comparison comparison = compare(before, after);
        EXPECT_NEAR(*comparison.change, 0.04, 0.015);
        EXPECT_LT(*comparison.change_low, *comparison.change);
        EXPECT_GT(*comparison.change_high, *comparison.change);
        EXPECT_TRUE(has_run_spread(comparison));
        EXPECT_NEAR(comparison.run_spread, 0.005, 0.005);
        seen += comparison.verdict == Verdict::kBetter ? 1 : 0;
        EXPECT_EQ(compare(before[0], after[0]).verdict, Verdict::kNoDifference) << "one of each does not";
    }
    EXPECT_GE(seen, 95);
}

TEST(CompareRuns, OneMoreRecordingLosesNoVerdict) {
    const std::vector<CompareSide> before{recording(100, 1), recording(101, 2)}, after{recording(140, 3)};
    EXPECT_EQ(compare(before[0], after[0]).verdict, Verdict::kBetter);
    const Comparison comparison = compare(before, after);
    EXPECT_EQ(comparison.verdict, Verdict::kBetter) << *comparison.p;
    EXPECT_EQ(comparison.recordings_before, 2u);
    EXPECT_EQ(comparison.recordings_after, 1u);
    // Unless it shows that runs lie farther apart than anybody would have thought.
    const std::vector<CompareSide> restless{recording(100, 1), recording(100, 4), recording(150, 2)};
    const std::vector<CompareSide> faster{recording(180, 3)};
    EXPECT_EQ(compare(restless[0], faster[0]).verdict, Verdict::kBetter);
    EXPECT_EQ(compare(restless, faster).verdict, Verdict::kNoDifference);
}

TEST(CompareRuns, HowManyRecordingsAreNeededIsSaid) {
    const Comparison one = compare(recording(100, 1), recording(95, 2));
    EXPECT_NEAR(least_loss_shown(one), 1 - std::exp(-3 * 0.08 * 0.95), 1e-9);
    EXPECT_FALSE(is_slower_by(one, 0.05));
    // 3 * 7.6 % against a logarithm of 0.051, by the root of their number.
    EXPECT_EQ(recordings_needed(one, -0.05), 20u);
    EXPECT_EQ(recordings_needed(one, -0.5), 1u);
    const std::size_t needed = recordings_needed(one, -0.10);
    ASSERT_EQ(needed, 5u);
    int seen = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed)
        seen += is_slower_by(compare(recordings(needed, 100, 0.02, 2 * seed), recordings(needed, 87, 0.02, 2 * seed + 1)), 0.05);
    EXPECT_GE(seen, 45);
    const auto before = recordings(needed, 100, 0.02, 1), after = recordings(needed, 100, 0.02, 2);
    EXPECT_LT(least_loss_shown(compare(before, after)), 0.10);
    // Where the GPU sets the pace one recording does, and of too little nothing is known.
    EXPECT_LT(least_loss_shown(compare(recording(100, 1, 0.05), recording(100, 2, 0.05))), 0.03);
    EXPECT_EQ(least_loss_shown(compare(CompareSide{}, CompareSide{})), 0);
}

TEST(CompareRuns, ShortRecordingsAreNotJudged) {
    const std::vector<CompareSide> before{recording(100, 1), recording(100, 2, 0.95, 2)}, after{recording(300, 3)};
    EXPECT_EQ(compare(before, after).verdict, Verdict::kTooFewBlocks);
    const std::vector<CompareSide> empty{recording(100, 1), {}};
    const Comparison comparison = compare(empty, after);
    EXPECT_EQ(comparison.verdict, Verdict::kTooFewBlocks);
    EXPECT_GT(*comparison.more_seconds, 0);
    const std::vector<CompareSide> few{recording(100, 1, 0.95, 3), recording(100, 2, 0.95, 3)};
    EXPECT_EQ(compare(few, after).verdict, Verdict::kTooFewBlocks) << "six blocks";
}

TEST(CompareRuns, EqualRecordingsAreEqual) {
    const std::vector<CompareSide> same{recording(100, 1), recording(100, 1)};
    const Comparison comparison = compare(same, same);
    EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
    EXPECT_EQ(*comparison.p, 1);
    EXPECT_EQ(comparison.run_spread, 0);
}

}  // namespace
}  // namespace millrace::diagnose
