// Windows that go otherwise than planned: what is seen of them is not the step, they do not begin, their calls do not come.

#include <gtest/gtest.h>

#include "record/window_schedule.h"

namespace millrace::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(WindowCourse, LoopOverLayersIsNoStepHoweverLateItIsSeen) {
    WindowSchedule schedule({}, nanoseconds{});
    ScheduleView view;
    view.now = milliseconds{1};
    view.launches = 1;
    schedule.next(view);
    view.now = milliseconds{900};
    view.facts = StepFacts{2, 64, 64, 0.15e6, CallKind::kCopyAsync, 1};  // reads of one step, after a slow start
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kFull);
    view.now = milliseconds{1100};
    view.facts = StepFacts{2, 1400, 1400, 0.15e6, CallKind::kCopyAsync, 1};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
}

/// What was learnt when a window ends, of which `facts` and so many launches are known; the first has steps of 860 launches and
/// 36 ms, and this is the window after so many.
std::pair<std::uint64_t, double> learnt(std::uint64_t windows, const StepFacts& facts, std::uint64_t launches) {
    WindowSchedule schedule({}, {});
    const StepFacts whole{860, 40, 40, 36e6, CallKind::kCopyAsync, 131};
    ScheduleView view;
    view.obeyed = true;
    while (view.now < std::chrono::hours{1} && schedule.windows() <= windows) {
        const bool last = schedule.windows() == windows;
        view.now += milliseconds{50};
        view.launches = last ? launches : 34'400;
        view.facts = last ? facts : whole;
        view.pulses += 200;
        view.in_full = schedule.in_window() && view.pulses % 4'000 > 400;
        schedule.next(view);
    }
    EXPECT_EQ(schedule.windows(), windows + 1);
    return {schedule.launches_per_step(), schedule.calls_per_step()};
}

TEST(WindowCourse, LoopInTheFirstKernelsOfAWindowThatAreKnownIsNoStep) {
    const std::pair<std::uint64_t, double> step{860, 131}, loop{7, 2};
    for (const std::uint64_t windows : {1, 2, 3, 5}) {
        EXPECT_EQ(learnt(windows, {7, 26, 26, 0.2e6, CallKind::kStreamSync, 2}, 190), step) << windows;
        EXPECT_EQ(learnt(windows, {7, 370, 370, 0.2e6, CallKind::kStreamSync, 2}, 2'200), step) << windows;
        // Whoever has seen three of the old steps, or most of the window, knows better.
        EXPECT_EQ(learnt(windows, {7, 370, 370, 0.2e6, CallKind::kStreamSync, 2}, 2'580), loop) << windows;
        EXPECT_EQ(learnt(windows, {7, 90, 90, 36e6, CallKind::kStreamSync, 2}, 630), loop) << windows;
    }
}

TEST(WindowCourse, PulsesThatStopBringALookByTheClock) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    view.obeyed = true;
    view.launches = 1000;
    view.facts = StepFacts{100, 100, 100, 7e6, CallKind::kSetAsync, 2};
    while (schedule.windows() < 3) {
        view.now += milliseconds{50};
        view.pulses += 100;
        schedule.next(view);
    }
    view.facts.reset();
    const nanoseconds since = view.now;
    const auto looks = [&](const ProbeOrder& order) { return order.mode == ProbeMode::kFull && order.full_calls == 0; };
    while (!looks(schedule.next(view)) && view.now < since + std::chrono::hours{1}) view.now += milliseconds{50};
    EXPECT_EQ(schedule.order().mode, ProbeMode::kFull);
    EXPECT_EQ(schedule.order().full_calls, 0u) << "nothing is known of its steps";
    EXPECT_GE(view.now - since, std::chrono::seconds{60});
    EXPECT_LT(view.now - since, std::chrono::minutes{10});
}

TEST(WindowCourse, NoWindowsComeWhereTheProbeIsGone) {
    for (const bool in_window : {false, true}) {
        WindowSchedule schedule({}, {});
        ScheduleView view;
        view.launches = 1000;
        view.facts = StepFacts{100, 100, 100, 7e6, CallKind::kSetAsync, 20};
        view.now = milliseconds{100};
        schedule.next(view);
        if (!in_window) {
            view.now = milliseconds{500};
            schedule.next(view);
        }
        ASSERT_EQ(schedule.in_window(), in_window);
        schedule.stop(view);
        EXPECT_EQ(schedule.windows(), 1u) << "the one that was open counts";
        for (int tick = 0; tick < 10'000; ++tick) {
            view.now += std::chrono::seconds{1};
            ASSERT_EQ(schedule.next(view).mode, ProbeMode::kOff);
            ASSERT_FALSE(schedule.in_window());
            schedule.stop(view);
        }
        EXPECT_EQ(schedule.windows(), 1u);
    }
}

TEST(WindowCourse, OneCallOfAStepIsTimed) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    view.now = milliseconds{100};
    view.launches = 20'000;
    view.facts = StepFacts{266, 60, 60, 5e6, CallKind::kLaunch, 266};
    schedule.next(view);
    view.now = milliseconds{500};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
    EXPECT_EQ(schedule.order().pulse_stride, 266u);
}

TEST(WindowCourse, WindowWhosePulsesDoNotComeEnds) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    view.now = std::chrono::seconds{1};
    view.launches = 1000;
    view.obeyed = true;
    view.in_full = true;
    schedule.next(view);
    view.facts = StepFacts{100, 60, 60, 4e6, CallKind::kCopyAsync, 1};
    view.now += std::chrono::seconds{1};
    schedule.next(view);
    view.pulses += 100;
    view.now += std::chrono::seconds{2};
    ASSERT_EQ(schedule.next(view).mode, ProbeMode::kFull);  // the second window; its calls never come
    view.facts.reset();
    view.now += std::chrono::seconds{3};
    schedule.next(view);
    view.now += std::chrono::seconds{1};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
    EXPECT_EQ(schedule.windows(), 2u);
}

/// The first window has shown steps of 4 ms, and the second is ordered.
void order_second_window(WindowSchedule& schedule, ScheduleView& view) {
    view.now = std::chrono::seconds{1};
    view.launches = 1000;
    view.obeyed = view.in_full = true;
    schedule.next(view);
    view.facts = StepFacts{100, 60, 60, 4e6, CallKind::kCopyAsync, 1};
    view.now += std::chrono::seconds{1};
    schedule.next(view);
    view.in_full = false;
    view.pulses += 100;
    view.now += std::chrono::seconds{2};
    ASSERT_EQ(schedule.next(view).mode, ProbeMode::kFull);
    view.facts.reset();
}

TEST(WindowCourse, WindowThatNobodyHasBegunDoesNotEnd) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    ASSERT_NO_FATAL_FAILURE(order_second_window(schedule, view));
    view.obeyed = false;  // the program is stopped
    for (int tick = 0; tick < 100; ++tick) {
        view.now += std::chrono::seconds{1};
        ASSERT_EQ(schedule.next(view).mode, ProbeMode::kFull);
    }
    view.obeyed = view.in_full = true;
    view.now += std::chrono::seconds{1};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kFull) << "it has only begun";
    EXPECT_EQ(schedule.windows(), 1u);
    view.now += std::chrono::seconds{2};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
    EXPECT_EQ(schedule.windows(), 2u);
}

TEST(WindowCourse, StepsBeforeAWindowHasBegunAreNotItsOwn) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    ASSERT_NO_FATAL_FAILURE(order_second_window(schedule, view));
    view.obeyed = false;  // the probe is late
    for (int tick = 0; tick < 10; ++tick) {
        view.now += milliseconds{50};
        view.pulses += 13;
        ASSERT_EQ(schedule.next(view).mode, ProbeMode::kFull) << tick;
    }
    view.obeyed = view.in_full = true;
    view.now += milliseconds{50};
    view.pulses += 13;
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kFull);
    view.now += milliseconds{50};
    view.pulses += 14;
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
}

TEST(WindowCourse, WhatIsCountedIsCountedOnBehindALookByTheClock) {
    WindowSchedule schedule({}, nanoseconds{});
    ScheduleView view;
    view.obeyed = true;
    view.pulse_step_ns = 5e6;
    ProbeOrder order = schedule.order();
    int blind = 0;
    for (int tick = 0; tick < 20'000; ++tick) {  // steps of 5 ms with two events each, which nobody finds after the early windows
        view.now += milliseconds{50};
        view.launches += 100;
        view.pulses += order.mode != ProbeMode::kOff ? 20 : 0;
        view.in_full = order.mode == ProbeMode::kFull && order.full_calls == 0;
        view.facts.reset();
        if (schedule.windows() < 3) view.facts = StepFacts{100, 60, 60, 5e6, CallKind::kEventRecord, 2};
        order = schedule.next(view);
        if (schedule.windows() < 3) continue;
        const bool looks = order.mode == ProbeMode::kFull && order.full_calls == 0;
        blind += looks ? 1 : 0;
        ASSERT_EQ(order.pulse_call, looks ? CallKind::kOther : CallKind::kEventRecord) << tick;
        ASSERT_EQ(schedule.calls_per_step(), 2) << tick;
    }
    EXPECT_GT(blind, 0);
}

}  // namespace
}  // namespace millrace::record
