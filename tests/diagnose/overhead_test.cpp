#include "diagnose/pace.h"

#include <gtest/gtest.h>

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
    timeline.samples = {{0, 1, 1, 'R', kNoStack, kNoName}, {100 * kOneSecond, 1, 1, 'R', kNoStack, kNoName}};
    timeline.windows = {
        {10 * kOneSecond, 18 * kOneSecond, 1}, {50 * kOneSecond, 52 * kOneSecond, 1}, {50 * kOneSecond, 99 * kOneSecond, 2}};
    EXPECT_FALSE(overhead_share(timeline, 1, 10, std::nullopt, 0));
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), 0.02, 1e-12) << "a fifth of ten seconds of a hundred";
    timeline.left_out = {timeline.windows.back()};
    timeline.left_out.back().process = 1;
    timeline.windows.resize(1);
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), 0.2 * 0.57, 1e-12) << "what is left out took its time, too";
    timeline.left_out = {{50 * kOneSecond, 52 * kOneSecond, 1}};
    EXPECT_EQ(overhead_share(timeline, 1, 10, 11, 0), 0) << "nothing is gained by recording";
    timeline.counting_share = 0.01;
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), 0.02 + 0.9 * 0.01, 1e-12);
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 200).value_or(-1), 0.02 + 0.9 * (0.01 + 0.03), 1e-12)
        << "and 1.2 us for each of 200 launches in 8 ms";
    timeline.presence_share = 0.1;
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 200).value_or(-1), 0.02 + 0.9 * (0.01 + 0.003), 1e-12) << "while it was there";
    EXPECT_FALSE(overhead_share(Timeline{}, 1, 10, 8, 0)) << "no run, no share";
}

TEST(Overhead, WindowsLongerThanAllTimeTogetherAreTheWholeRun) {
    Timeline timeline;
    timeline.windows.assign(65, {0, Time{1} << 57, 1});
    EXPECT_NEAR(overhead_share(timeline, 1, 10, 8, 0).value_or(-1), 0.2, 1e-12);
}

}  // namespace
}  // namespace millrace::diagnose
