#include "diagnose/left_out_windows.h"

#include "diagnose/recorded_windows.h"

namespace millrace::diagnose {
namespace {

TEST(FastWindows, AreLeftOutWhereALaterOneShowsTheRestOfTheRun) {
    Timeline timeline = recorded(starved, 240, {{5, 55}, {130, 155}});
    const Window fast = timeline.windows.front();
    for (Time i = 0; i < 400; ++i)  // the worker sleeps meanwhile
        timeline.samples.push_back({fast.begin + i * (fast.end - fast.begin) / 400, kWorker, kWorker, 'S', kNoStack, kNoName});
    std::ranges::stable_sort(timeline.samples, {}, &Sample::time);
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
    EXPECT_LE(diagnosis.steps, 25u);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_NEAR(sum_of(diagnosis), *diagnosis.undisturbed_step_ms, 0.1 * *diagnosis.undisturbed_step_ms);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, *diagnosis.undisturbed_step_ms - 3.2, 2);
    EXPECT_TRUE(says(diagnosis, "left out 1 of 2 windows"));
    EXPECT_NE(diagnosis.findings.front().evidence.find("too few workers"), std::string::npos) << "it slept in the other window";
    EXPECT_FALSE(says(diagnosis, "outside of the windows"));
}

TEST(FastWindows, RestlessProgramsKeepAllOfTheirs) {
    const StepBody restless = [](SimulatedProgram& p, int step, bool) {
        p.next_batch(step < 60    ? 17'000
                     : step < 110 ? 20'500
                     : step < 150 ? 19'000
                                  : 20'000,
                     1, 37, 'R', {user_line(90, "__getitem__")});
        p.at(38);
        train(p, {4, 200});
    };
    const Diagnosis diagnosis = diagnose(recorded(restless, 300, {{5, 55}, {80, 105}, {120, 145}}));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_GE(diagnosis.steps, 88u);
    EXPECT_FALSE(says(diagnosis, "left out"));
}

WindowSteps window_of(std::size_t steps, double each_ns) {
    const auto each = static_cast<Time>(each_ns);
    WindowSteps window;
    for (std::size_t i = 0; i < steps; ++i) {
        Step step;
        step.begin = static_cast<Time>(i) * each;
        step.end = step.begin + each;
        window.steps.push_back(step);
    }
    return window;
}

TEST(FastWindows, OthersMustBeManyAndNearer) {
    constexpr Time kMs = 1'000'000;
    const std::vector<Block> blocks{{0, 2'000 * kMs, 100}};  // 20 ms a step
    const auto left_out = [&](std::vector<WindowSteps> windows) {
        const std::size_t count = leave_out_fast(blocks, windows);
        EXPECT_EQ(static_cast<std::size_t>(std::ranges::count_if(windows, [](const auto& each) { return each.steps.empty(); })),
                  count);
        return count;
    };
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(10, 20 * kMs)}), 1u);
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(9, 20 * kMs)}), 0u) << "too few to speak for the run";
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(25, 10 * kMs)}), 0u) << "there are no others";
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(25, 15 * kMs), window_of(10, 20 * kMs)}), 2u);
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(10, 20 * kMs), window_of(25, 15 * kMs)}), 1u)
        << "after one that is as slow as the run, a fast one is its unrest";
    EXPECT_EQ(left_out({window_of(20, 20 * kMs), window_of(30, 10 * kMs)}), 0u) << "nor is it the beginning here";
    EXPECT_EQ(left_out({window_of(25, 10 * kMs), window_of(25, 27 * kMs)}), 0u) << "together they are as fast as the run";
    EXPECT_EQ(left_out({window_of(10, 15 * kMs), window_of(40, 20.5 * kMs)}), 0u) << "as do these, though the second is nearer";
    EXPECT_EQ(left_out({window_of(50, 10 * kMs), window_of(10, 40 * kMs)}), 0u) << "those are further off";
    EXPECT_EQ(left_out({window_of(50, 20 * kMs), window_of(25, 22 * kMs)}), 0u);
    std::vector<WindowSteps> windows{window_of(50, 10 * kMs), window_of(10, 20 * kMs)};
    EXPECT_EQ(leave_out_fast({}, windows), 0u) << "nothing is known of the run";
    EXPECT_EQ(leave_out_fast(std::vector<Block>{{0, 900 * kMs, 45}}, windows), 0u) << "less than a second is";
}

}  // namespace
}  // namespace millrace::diagnose
