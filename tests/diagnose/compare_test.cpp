#include "diagnose/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace millrace::diagnose {
namespace {

struct SimulatedBlocks {
    double seconds = 15, step_ms = 20;
    double noise = 0.02;          ///< of single steps
    double memory_seconds = 0.3;  ///< how long steps stay alike
    double drift = 0;             ///< share by which steps get longer over the run
    double pause_at = -1, pause_seconds = 5;
};

/// Pulses of a program whose steps are autocorrelated, as blocks of 0.1 s or more.
std::vector<Block> simulate_blocks(const SimulatedBlocks& how, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<Block> blocks;
    const double keep = how.memory_seconds > 0 ? std::exp(-how.step_ms / 1e3 / how.memory_seconds) : 0;
    double time = 0, deviation = normal(random), since = 0, steps = 0;
    bool paused = false;
    while (time < how.seconds) {
        deviation = keep * deviation + std::sqrt(1 - keep * keep) * normal(random);
        double step = how.step_ms / 1e3 * std::exp(how.noise * deviation) * (1 + how.drift * time / how.seconds);
        if (how.pause_at >= 0 && !paused && time >= how.pause_at) {
            step += how.pause_seconds;
            paused = true;
        }
        time += step;
        ++steps;
        if (time - since >= 0.1) {
            blocks.push_back({static_cast<Time>(since * 1e9), static_cast<Time>(time * 1e9), steps});
            since = time;
            steps = 0;
        }
    }
    return blocks;
}

CompareSide side(const SimulatedBlocks& how, std::uint64_t seed) { return {"", simulate_blocks(how, seed), {}, {}}; }

SimulatedBlocks slower_by(SimulatedBlocks how, double share) {
    how.step_ms *= 1 + share;
    return how;
}

TEST(Compare, ClearEffectsAreSeenInTenOfTenPairs) {
    for (const double effect : {0.08, 0.18, 0.5, 4.0})
        for (std::uint64_t pair = 0; pair < 10; ++pair) {
            const Comparison comparison = compare(side(slower_by({}, effect), 2 * pair), side({}, 2 * pair + 1));
            EXPECT_EQ(comparison.verdict, Verdict::kBetter) << effect << " pair " << pair << " p " << *comparison.p;
            EXPECT_NEAR(*comparison.change, effect, 0.04 + 0.05 * effect);
            EXPECT_EQ(compare(side({}, 2 * pair), side(slower_by({}, effect), 2 * pair + 1)).verdict, Verdict::kWorse);
        }
}

TEST(Compare, TheSameProgramTwiceShowsNoDifference) {
    int shown = 0;
    for (std::uint64_t pair = 0; pair < 200; ++pair)
        shown += compare(side({}, 1000 + 2 * pair), side({}, 1001 + 2 * pair)).verdict != Verdict::kNoDifference;
    EXPECT_EQ(shown, 0);
}

TEST(Compare, StepsAlikeForSecondsDoNotMakeADifference) {
    SimulatedBlocks how;
    how.seconds = 60;
    how.noise = 0.05;
    how.memory_seconds = 2;
    int shown = 0;
    for (std::uint64_t pair = 0; pair < 100; ++pair)
        shown += compare(side(how, 3000 + 2 * pair), side(how, 3001 + 2 * pair)).verdict != Verdict::kNoDifference;
    EXPECT_LE(shown, 2);  // blocks of half a second, taken for independent, show one in every sixth of these pairs
}

/// Blocks of half a second whose speeds wander: each remembers the one before for some seconds, and all drift.
std::vector<Block> wandering(double seconds, double noise, double memory, double drift, double speed, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    const double length = 0.5, keep = std::exp(-length / memory);
    double wander = normal(random);
    std::vector<Block> blocks;
    for (double time = 0; time < seconds; time += length) {
        wander = keep * wander + std::sqrt(1 - keep * keep) * normal(random);
        const double now = speed * std::exp(noise * wander + 0.2 * noise * normal(random)) * (1 + drift * time / seconds);
        blocks.push_back({static_cast<Time>(time * 1e9), static_cast<Time>((time + length) * 1e9), now * length});
    }
    return blocks;
}

/// A longer simulation: 15 of 11,700 such pairs.
TEST(Compare, RestlessRunsShowADifferenceHardlyMoreOftenThanPromised) {
    std::mt19937_64 random(11);
    int shown = 0, pairs = 0;
    for (const double noise : {0.02, 0.05})
        for (const double memory : {0.5, 1.0, 2.0})
            for (const double drift : {0.0, 0.05})
                for (int pair = 0; pair < 150; ++pair, ++pairs) {
                    const CompareSide before{"", wandering(12, noise, memory, drift, 50, random), {}, {}};
                    const CompareSide after{"", wandering(12, noise, memory, drift, 50, random), {}, {}};
                    shown += compare(before, after).verdict != Verdict::kNoDifference;
                }
    EXPECT_EQ(pairs, 1800);
    EXPECT_LE(shown, 3);
}

/// A step of which the GPU computes for all but `host`.
std::array<double, kOwners> breakdown(double host) {
    std::array<double, kOwners> owners{};
    owners[static_cast<std::size_t>(Owner::kCompute)] = 20 * (1 - host);
    owners[static_cast<std::size_t>(Owner::kAllocatorChurn)] = 20 * host;
    return owners;
}

TEST(Compare, ARestlessProgramThatIsCuredIsSeenAndItselfIsNot) {
    std::mt19937_64 random(14);
    int seen = 0, shown = 0, blind = 0, drifted = 0;
    for (int pair = 0; pair < 200; ++pair) {
        CompareSide sick{"", wandering(24, 0.06, 0.3, 0, 38, random), {}, breakdown(0.18)};
        const CompareSide again{"", wandering(24, 0.06, 0.3, 0, 38, random), {}, breakdown(0.18)};
        CompareSide cured{"", wandering(24, 0.01, 0.3, 0, 42.8, random), {}, breakdown(0.01)};
        seen += compare(sick, cured).verdict == Verdict::kBetter;
        shown += compare(sick, again).verdict != Verdict::kNoDifference;
        sick.breakdown_ms.reset();
        blind += compare(sick, cured).verdict == Verdict::kBetter;
        // Unrest that is slow, under as much that is not.
        CompareSide slow{"", wandering(24, 0.03, 6, 0, 38, random), {}, breakdown(0.02)}, other = slow;
        other.blocks = wandering(24, 0.03, 6, 0, 38, random);
        for (CompareSide* side : {&slow, &other})
            for (Block& block : side->blocks) block.steps *= std::exp(0.03 * std::normal_distribution<double>()(random));
        drifted += compare(slow, other).verdict != Verdict::kNoDifference;
    }
    EXPECT_GE(seen, 135);  // three of four
    EXPECT_LE(shown, 1);
    EXPECT_LE(blind, seen - 40) << "where nothing is known of the host's part, all of the unrest counts";
    EXPECT_LE(drifted, 4);
}

/// A longer simulation, also with five recordings a side and with 6 s each: 4 of 4,800.
TEST(Compare, SeveralRestlessRecordingsShowADifferenceHardlyMoreOftenThanPromised) {
    std::mt19937_64 random(15);
    int shown = 0;
    for (const double noise : {0.02, 0.05})
        for (const double memory : {1.0, 3.0})
            for (int pair = 0; pair < 150; ++pair)
                for (const std::size_t count : {2u, 3u}) {
                    std::vector<CompareSide> before, after;
                    for (std::size_t i = 0; i < count; ++i)
                        for (auto* side : {&before, &after})
                            side->push_back({"", wandering(12, noise, memory, 0, 50, random), {}, breakdown(0.02)});
                    shown += compare(before, after).verdict != Verdict::kNoDifference;
                }
    EXPECT_LE(shown, 6) << "of 1,200";
}

TEST(Compare, WhereOnlyCertaintyIsMissingItSaysHowMuchLonger) {
    std::mt19937_64 random(13);
    int asked = 0, seen = 0;
    const auto pair = [&](double seconds) {
        return compare({"", wandering(seconds, 0.05, 0.5, 0, 38, random), {}, breakdown(0.15)},
                       {"", wandering(seconds, 0.01, 0.5, 0, 42.8, random), {}, breakdown(0.01)});
    };
    for (int i = 0; i < 200; ++i) {
        const Comparison comparison = pair(5);
        EXPECT_FALSE(comparison.verdict == Verdict::kBetter && comparison.more_seconds);
        if (!comparison.more_seconds) continue;
        EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
        EXPECT_GE(*comparison.p, CompareSettings{}.alpha);
        EXPECT_GT(*comparison.more_seconds, 0);
        EXPECT_LE(*comparison.more_seconds, 9 * 5.0);
        ++asked;
        seen += pair(5 + *comparison.more_seconds).verdict == Verdict::kBetter;
    }
    EXPECT_GE(asked, 20);
    EXPECT_GE(seen, asked * 2 / 3) << "of " << asked;
    // Nothing to be certain of.
    EXPECT_FALSE(compare(side({}, 1), side({}, 2)).more_seconds);
}

TEST(Compare, ThreePercentAreSeenInShortRunsThatAreFairlySteady) {
    std::mt19937_64 random(12);
    int seen = 0;
    for (const double seconds : {9.0, 12.0})
        for (const double memory : {0.3, 2.0})
            for (int pair = 0; pair < 50; ++pair) {
                const CompareSide before{"", wandering(seconds, 0.003, memory, 0, 50, random), {}, {}};
                const CompareSide after{"", wandering(seconds, 0.003, memory, 0, 51.5, random), {}, {}};
                seen += compare(before, after).verdict == Verdict::kBetter;
            }
    EXPECT_GE(seen, 194);  // of 200
}

TEST(Compare, WhatRunsOfOneProgramDifferByIsNoDifference) {
    // Each process has a speed of its own: two and a half times the spread of its blocks away, however many blocks say so.
    const SimulatedBlocks restless{60, 20, 0.05, 0.3};
    const CompareSide before = side(restless, 1), after = side(slower_by(restless, 0.07), 2);
    const Comparison comparison = compare(before, after);
    EXPECT_LT(*comparison.p, 0.001);
    EXPECT_LT(*comparison.change, -0.04);
    EXPECT_NEAR(comparison.spread, 0.036, 0.01);
    EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
    EXPECT_FALSE(is_slower_by(comparison, 0.02));
    EXPECT_TRUE(is_open(comparison, 0.02)) << "a loss that may be one";
    EXPECT_FALSE(is_open(comparison, 0.2));
    CompareSettings alone;
    alone.min_spread = 0;
    EXPECT_EQ(compare(before, after, alone).verdict, Verdict::kWorse);
    EXPECT_TRUE(is_slower_by(compare(before, after, alone), 0.02, alone));
    EXPECT_EQ(compare(before, side(slower_by(restless, 0.2), 2)).verdict, Verdict::kWorse);
}

TEST(Compare, PausesInEveryFewBlocksDoNotHideWhatIsSlower) {
    // An evaluation or a checkpoint that takes a part of every eighth block, or of every third.
    for (const int every : {3, 8}) {
        std::mt19937_64 random(1);
        std::normal_distribution<double> normal;
        const auto made = [&](double speed) {
            CompareSide side;
            for (int at = 0; at < 80; ++at)
                side.blocks.push_back({at * Time{500'000'000}, (at + 1) * Time{500'000'000},
                                       speed / 2 * std::exp(0.005 * normal(random)) * (at % every == 0 ? 0.8 : 1)});
            return side;
        };
        const Comparison comparison = compare(made(100), made(88));
        EXPECT_LT(comparison.spread, 0.02) << every;
        EXPECT_EQ(comparison.verdict, Verdict::kWorse) << every;
        EXPECT_TRUE(is_slower_by(comparison, 0.05)) << every;
    }
}

TEST(Compare, DifferencesBelowTheLeastEffectCountAsNone) {
    SimulatedBlocks quiet;
    quiet.noise = 0.002;
    const CompareSide before = side(slower_by(quiet, 0.01), 1), after = side(quiet, 2);
    const Comparison comparison = compare(before, after);
    EXPECT_LT(*comparison.p, 0.001);
    EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
    CompareSettings finer;
    finer.min_effect = 0.005;
    EXPECT_EQ(compare(before, after, finer).verdict, Verdict::kBetter);
}

TEST(Compare, DriftInBothRunsIsNoDifference) {
    SimulatedBlocks drifting;
    drifting.drift = 0.05;
    drifting.noise = 0.01;
    drifting.seconds = 30;
    for (std::uint64_t pair = 0; pair < 10; ++pair) {
        const Comparison comparison = compare(side(drifting, 100 + 2 * pair), side(drifting, 101 + 2 * pair));
        EXPECT_EQ(comparison.verdict, Verdict::kNoDifference) << *comparison.change;
        ASSERT_FALSE(comparison.remarks.empty());
        EXPECT_NE(comparison.remarks[0].find("drifts"), std::string::npos);
        EXPECT_EQ(compare(side(slower_by(drifting, 0.18), 2 * pair), side(drifting, 2 * pair + 1)).verdict, Verdict::kBetter);
    }
}

TEST(Compare, APausedRunIsNotASlowerOneAndHidesNoEffect) {
    SimulatedBlocks paused;
    paused.pause_at = 7;
    paused.seconds = 20;
    for (std::uint64_t pair = 0; pair < 10; ++pair) {
        const Comparison same = compare(side({}, 2 * pair), side(paused, 2 * pair + 1));
        EXPECT_EQ(same.verdict, Verdict::kNoDifference);
        ASSERT_FALSE(same.remarks.empty());
        EXPECT_NE(same.remarks.back().find("pauses"), std::string::npos);
        EXPECT_EQ(compare(side(slower_by({}, 0.1), 2 * pair), side(paused, 2 * pair + 1)).verdict, Verdict::kBetter);
    }
}

TEST(Compare, OneOutlierBlockNeitherMakesNorHidesADifference) {
    for (const double odd : {0.0, 1e6}) {
        CompareSide before = side({}, 1), after = side({}, 2), faster = side(slower_by({}, -0.1), 3);
        for (CompareSide* each : {&after, &faster}) {
            const Time end = each->blocks.back().end;
            each->blocks.push_back({end, end + 600'000'000, odd});
        }
        EXPECT_EQ(compare(before, after).verdict, Verdict::kNoDifference);
        EXPECT_EQ(compare(before, faster).verdict, Verdict::kBetter);
    }
}

std::vector<Block> even_blocks(std::size_t count, double steps, double seconds = 0.5) {
    std::vector<Block> blocks;
    const auto length = static_cast<Time>(seconds * 1e9);
    for (std::size_t at = 0; at < count; ++at)
        blocks.push_back(
            {static_cast<Time>(at) * length, static_cast<Time>(at + 1) * length, steps + 1e-3 * static_cast<double>(at)});
    return blocks;
}

TEST(Compare, TooFewBlocksAreSaidWithHowMuchIsMissing) {
    for (std::size_t count = 1; count < 7; ++count) {
        const Comparison comparison = compare({"", even_blocks(count, 10), {}, {}}, {"", even_blocks(count, 100), {}, {}});
        EXPECT_EQ(comparison.verdict, Verdict::kTooFewBlocks);
        EXPECT_NEAR(*comparison.more_seconds, 0.5 * static_cast<double>(7 - count), 1e-9);
        EXPECT_FALSE(comparison.p);
        EXPECT_NEAR(*comparison.change, 9, 0.01);
        EXPECT_FALSE(is_slower_by(comparison, 0.05));
    }
    EXPECT_EQ(compare({"", even_blocks(7, 10), {}, {}}, {"", even_blocks(7, 100), {}, {}}).verdict, Verdict::kBetter);
    // A short run is not judged by a long one.
    for (const std::size_t count : {3, 6}) {
        const Comparison unequal = compare({"", even_blocks(count, 10), {}, {}}, {"", even_blocks(40, 100), {}, {}});
        EXPECT_EQ(unequal.verdict, Verdict::kTooFewBlocks);
        EXPECT_NEAR(*unequal.more_seconds, 0.5 * static_cast<double>(7 - count), 1e-9);
    }
    const Comparison nothing = compare({}, {"", even_blocks(20, 10), {}, {}});
    EXPECT_EQ(nothing.verdict, Verdict::kTooFewBlocks);
    EXPECT_EQ(nothing.before.blocks, 0u);
    EXPECT_FALSE(nothing.change);
}

TEST(Compare, StepsLongerThanABlockAskForMoreTime) {
    const Comparison comparison = compare({"", even_blocks(4, 1, 3.0), {}, {}}, {"", even_blocks(5, 1, 2.0), {}, {}});
    EXPECT_NEAR(*comparison.more_seconds, 9.0, 1e-9);
}

TEST(Compare, GateFailsOnlyWhenShownAndLargerThanAllowed) {
    const CompareSide fast = side({}, 1), slow = side(slower_by({}, 0.10), 2);
    EXPECT_TRUE(is_slower_by(compare(fast, slow), 0.05));
    EXPECT_FALSE(is_slower_by(compare(fast, slow), 0.15));
    EXPECT_FALSE(is_slower_by(compare(slow, fast), 0.05));
    EXPECT_FALSE(is_slower_by(compare(fast, side({}, 3)), 0.0));
}

TEST(Compare, TheSameInputGivesTheSameAnswer) {
    const CompareSide before = side({}, 1), after = side(slower_by({}, 0.03), 2);
    const Comparison one = compare(before, after), other = compare(before, after);
    EXPECT_EQ(one.p, other.p);
    EXPECT_EQ(one.change_low, other.change_low);
    EXPECT_LE(*one.change_low, *one.change);
    EXPECT_GE(*one.change_high, *one.change);
}

TEST(Compare, AnHourIsComparedInBoundedBlocks) {
    const Comparison comparison = compare({"", even_blocks(7200, 10), {}, {}}, {"", even_blocks(7200, 10), {}, {}});
    EXPECT_LE(comparison.before.blocks, 400u);
    EXPECT_NEAR(comparison.before.seconds, 3600, 1e-6);
    EXPECT_EQ(comparison.verdict, Verdict::kNoDifference);
}

TEST(Paces, NeighboursAreAddedUpAndNothingIsLost) {
    const std::vector<Block> blocks{{0, 200'000'000, 2},
                                    {900'000'000, 1'300'000'000, 4},
                                    {2'000'000'000, 2'500'000'000, 5},
                                    {3'000'000'000, 3'100'000'000, 1}};
    const std::vector<Pace> merged = paces(blocks, 0.5);
    ASSERT_EQ(merged.size(), 2u);
    EXPECT_NEAR(merged[0].seconds, 0.6, 1e-9);
    EXPECT_EQ(merged[0].steps, 6);
    EXPECT_NEAR(merged[1].seconds, 0.6, 1e-9);
    EXPECT_EQ(merged[1].steps, 6);
    EXPECT_TRUE(paces(std::span(blocks).first(1), 0.5).empty());
}

TEST(Paces, HostileBlocksArePassedOver) {
    const double infinite = std::numeric_limits<double>::infinity();
    const std::vector<Block> blocks{
        {10, 10, 1},          {20, 5, 1}, {0, 1'000'000'000, infinite}, {0, 1'000'000'000, -1}, {0, 1'000'000'000, std::nan("")},
        {0, 1'000'000'000, 3}};
    ASSERT_EQ(paces(blocks, 0.5).size(), 1u);
    EXPECT_EQ(paces(blocks, 0.5)[0].steps, 3);
    const Time most = std::numeric_limits<Time>::max(), least = std::numeric_limits<Time>::min();
    EXPECT_EQ(paces(std::vector<Block>{{least, most, 1}}, 0.5).size(), 1u);
}

TEST(SpeedBlocks, RecordedStepsStandInWhereNothingElseWasCounted) {
    Timeline timeline;
    Diagnosis diagnosis;
    diagnosis.recorded = {{0, 5}, {5, 9}};
    ASSERT_EQ(speed_blocks(timeline, diagnosis).size(), 2u);
    EXPECT_EQ(speed_blocks(timeline, diagnosis)[1].begin, 5);
    timeline.blocks = {{0, 100, 7}};
    ASSERT_EQ(speed_blocks(timeline, diagnosis).size(), 1u);
    EXPECT_EQ(speed_blocks(timeline, diagnosis)[0].steps, 7);
    diagnosis.blocks = {{0, 100, 70}};
    ASSERT_EQ(speed_blocks(timeline, diagnosis).size(), 1u);
    EXPECT_EQ(speed_blocks(timeline, diagnosis)[0].steps, 70) << "in training steps";
}

}  // namespace
}  // namespace millrace::diagnose
