#include "diagnose/replay/study.h"

#include <gtest/gtest.h>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr Time kOneSecond = 1'000'000'000;

TEST(Overhead, LittleUnrecordedRunningTellsNothing) {
    Timeline timeline;
    EXPECT_FALSE(undisturbed_step_ms(timeline.blocks));
    timeline.blocks = {{0, 284'000'000, 12}};
    EXPECT_FALSE(undisturbed_step_ms(timeline.blocks));
    timeline.blocks = {{0, 999'000'000, 500}};
    EXPECT_FALSE(undisturbed_step_ms(timeline.blocks)) << "less than a second";
    timeline.blocks = {{0, 10 * kOneSecond, 19}};
    EXPECT_FALSE(undisturbed_step_ms(timeline.blocks)) << "fewer than twenty steps";
    timeline.blocks = {{0, kOneSecond / 2, 10}, {kOneSecond, kOneSecond + kOneSecond / 2, 10}};
    EXPECT_EQ(undisturbed_step_ms(timeline.blocks), 50);
}

TEST(Overhead, AnEvaluationInABlockDoesNotMakeTheStep) {
    Timeline timeline;
    timeline.blocks = {{0, kOneSecond, 100}, {kOneSecond, 2 * kOneSecond, 100}, {2 * kOneSecond, 40 * kOneSecond, 12}};
    EXPECT_EQ(undisturbed_step_ms(timeline.blocks), 10);
}

TEST(Overhead, IsWhatWindowsAddOverTheWholeRun) {
    Timeline timeline;
    timeline.run = {0, 100 * kOneSecond, 1};
    timeline.windows = {
        {10 * kOneSecond, 18 * kOneSecond, 1}, {50 * kOneSecond, 52 * kOneSecond, 1}, {50 * kOneSecond, 99 * kOneSecond, 2}};
    EXPECT_FALSE(overhead_share(timeline, 1, 10, std::nullopt, 0));
    const auto longer_by = [](double lost) { return lost / (1 - lost); };
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), longer_by(0.02), 1e-12)
        << "a fifth of ten seconds of a hundred";
    timeline.left_out = {timeline.windows.back()};
    timeline.left_out.back().process = 1;
    timeline.windows.resize(1);
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), longer_by(0.2 * 0.57), 1e-12)
        << "what is left out took its time, too";
    timeline.left_out = {{50 * kOneSecond, 52 * kOneSecond, 1}};
    EXPECT_EQ(overhead_share(timeline, 1, 10, 11, 0), 0) << "nothing is gained by recording";
    timeline.counting_share = 0.01;
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), longer_by(0.02 + 0.9 * 0.01), 1e-12);
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0.24).value_or(-1), longer_by(0.02 + 0.9 * (0.01 + 0.24 / 8.24)), 1e-12)
        << "and what CUPTI adds to a step of 8 ms";
    timeline.windows = {{0, 100 * kOneSecond, 1}};
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0.24).value_or(-1), 0.25, 1e-12) << "windows alone: ten instead of eight";
    timeline.windows.clear();
    timeline.left_out.clear();
    timeline.counting_share = 1;
    EXPECT_FALSE(overhead_share(timeline, 1, 10, 8, 0)) << "nothing else would have been done";
    EXPECT_FALSE(overhead_share(Timeline{}, 1, 10, 8, 0)) << "no run, no share";
}

TEST(Overhead, WindowsLongerThanAllTimeTogetherAreTheWholeRun) {
    Timeline timeline;
    timeline.run = {0, Time{1} << 57, 1};
    timeline.windows.assign(65, timeline.run);
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), 0.25, 1e-12);
}

/// A host that launches 400 kernels and needs `kernel_us` of the GPU for each; CUPTI makes each launch 1.2 us longer in windows
/// and outside of them.
Timeline with_cupti(double kernel_us, double presence_share) {
    SimulatedProgram::Traits traits;
    traits.launch_us = 6 + 1.2 * presence_share;
    const auto body = [&](SimulatedProgram& p, int, bool) {
        p.at(20);
        for (int i = 0; i < 400; ++i) p.launch("gemm" + std::to_string(i % 7), kernel_us);
        p.launch("multi_tensor_apply_kernel", 10);
    };
    Simulation simulation = simulate(body, false, 60, traits);
    const Time end = simulation.timeline.windows.back().end, step = static_cast<Time>(simulation.step_ms * 1e6);
    for (int block = 0; block < 10; ++block)
        simulation.timeline.blocks.push_back({end + block * 100 * step, end + (block + 1) * 100 * step, 100});
    simulation.timeline.run = {0, end + 1000 * step, 1};
    simulation.timeline.presence_share = presence_share;
    return std::move(simulation.timeline);
}

TEST(Overhead, WhatCuptiTakesOfEachLaunchIsPredictedAndTakenOff) {
    const Diagnosis without = diagnose(with_cupti(2, 0)), with = diagnose(with_cupti(2, 1)), half = diagnose(with_cupti(2, 0.5));
    ASSERT_TRUE(without.undisturbed_step_ms && with.undisturbed_step_ms && half.undisturbed_step_ms);
    EXPECT_NEAR(without.overhead_share.value_or(-1), 0, 0.002);
    EXPECT_NEAR(with.overhead_share.value_or(-1), 400 * 0.0012 / *without.undisturbed_step_ms, 0.015);
    EXPECT_NEAR(half.overhead_share.value_or(-1), 400 * 0.0006 / *without.undisturbed_step_ms, 0.015);
    EXPECT_NEAR(*with.undisturbed_step_ms, *without.undisturbed_step_ms, 0.015 * *without.undisturbed_step_ms);
    ASSERT_TRUE(finding_of(with, Kind::kLaunchBound) && finding_of(without, Kind::kLaunchBound));
    EXPECT_NEAR(finding_of(with, Kind::kLaunchBound)->lost_ms_per_step, finding_of(without, Kind::kLaunchBound)->lost_ms_per_step,
                0.03 * without.step_ms);
}

TEST(Overhead, CuptiCostsNothingWhereTheHostHasTime) {
    const Diagnosis busy = diagnose(with_cupti(40, 1));
    EXPECT_NEAR(busy.overhead_share.value_or(-1), 0, 0.003);
    ASSERT_TRUE(busy.undisturbed_step_ms);
    EXPECT_NEAR(*busy.undisturbed_step_ms, busy.step_ms, 0.01 * busy.step_ms);
}

}  // namespace
}  // namespace millrace::diagnose
