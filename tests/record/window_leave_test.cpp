// When CUPTI is asked to leave the process, and what becomes of windows then (a trial).

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "record/window_schedule.h"

namespace millrace::record {
namespace {

using std::chrono::milliseconds;

/// A schedule after `windows` windows of a program with these facts, and what it has ordered then.
ProbeOrder order_after(const StepFacts& facts, std::uint64_t windows, bool may_leave = true) {
    ScheduleSettings settings;
    settings.may_leave = may_leave;
    WindowSchedule schedule(settings, {});
    ScheduleView view;
    view.obeyed = true;
    view.launches = 1000;
    while (schedule.windows() < windows && view.now < std::chrono::seconds{60}) {
        view.now += milliseconds{50};
        view.facts = facts;
        view.pulses += 50 * facts.calls_per_step;
        view.in_full = false;
        schedule.next(view);
    }
    return schedule.order();
}

TEST(WindowLeave, CuptiLeavesAfterEarlyWindowsWhereItsPresenceCosts) {
    StepFacts facts{266, 100, 100, 7e6, CallKind::kSetAsync, 2};
    facts.led_call = CallKind::kEventRecord;
    facts.led_per_step = 3;
    facts.led_among = 5;
    ProbeOrder order = order_after(facts, 1);
    EXPECT_TRUE(order.pulse_led);
    EXPECT_EQ(order.pulse_call, CallKind::kEventRecord);
    EXPECT_EQ(order.pulse_stride, 3u);
    EXPECT_FALSE(order.detach) << "two windows follow soon";
    EXPECT_FALSE(order_after(facts, 3, false).detach);
    EXPECT_FALSE(order_after(facts, 3, false).leads);
    EXPECT_TRUE(order.leads) << "from the first window on, so that it is known which calls are";
    EXPECT_FALSE(order_after(facts, 3, false).pulse_led);
    order = order_after(facts, 3);
    EXPECT_TRUE(order.detach);
    EXPECT_EQ(order.mode, ProbeMode::kPulse);

    facts.step_ns = 40e6;
    EXPECT_FALSE(order_after(facts, 3).detach) << "few launches in a long step";
    EXPECT_EQ(order_after(facts, 3).pulse_call, CallKind::kSetAsync);
    facts.step_ns = 7e6;
    facts.graphs = true;
    EXPECT_FALSE(order_after(facts, 3).detach);
    facts.graphs = false;
    facts.led_per_step = 0;
    EXPECT_FALSE(order_after(facts, 3).detach) << "nobody would count";
}

/// How many windows there are in 200 s of a program that CUPTI slows down between them, and whether some were missed.
std::pair<std::uint64_t, bool> windows_of_dear_program(bool stays, bool may_leave) {
    ScheduleSettings settings;
    settings.every = 100;
    settings.may_leave = may_leave;
    WindowSchedule schedule(settings, {});
    ScheduleView view;
    view.obeyed = true;
    view.launches = 1000;
    view.pulse_step_ns = 6.9e6;
    StepFacts facts{266, 100, 100, 7e6, CallKind::kSetAsync, 2};
    facts.led_call = CallKind::kSetAsync;
    facts.led_per_step = 1;
    view.facts = facts;
    for (int tick = 0; tick < 4000; ++tick) {
        view.now += milliseconds{50};
        view.pulses += may_leave ? 7 : 14;
        view.stays = stays && schedule.order().detach;
        const ProbeOrder order = schedule.next(view);
        if (stays) continue;
        EXPECT_EQ(order.detach, may_leave && schedule.windows() >= 3) << tick;
    }
    EXPECT_NEAR(schedule.waiting_share(), 1200 * 266 / 6.9e6, 1e-4);
    return {schedule.windows(), schedule.has_missed_windows()};
}

TEST(WindowLeave, ThereAreNoMoreWindowsOnceCuptiHasLeft) {
    EXPECT_EQ(windows_of_dear_program(false, true), std::pair(std::uint64_t{3}, true));
    const auto [windows_where_it_stays, missed] = windows_of_dear_program(true, true);
    EXPECT_GT(windows_where_it_stays, 10u);
    EXPECT_FALSE(missed);
    const auto [windows_where_it_must, missed_there] = windows_of_dear_program(false, false);
    EXPECT_GT(windows_where_it_must, 10u);
    EXPECT_FALSE(missed_there);
}

/// When CUPTI leaves such a program that has workers, and after how many windows: a step takes 7 ms in windows, and `outside`.
std::pair<double, std::uint64_t> leaves_after(double outside_ms, double later_ms) {
    WindowSchedule schedule({}, {});
    ScheduleView view;
    view.obeyed = true;
    view.workers = true;
    view.launches = 1000;
    std::chrono::nanoseconds third{};
    double pulses = 0;
    while (!schedule.order().detach && view.now < std::chrono::minutes{2}) {
        view.now += milliseconds{10};
        const bool inside = schedule.in_window();
        const double step_ms = inside ? (schedule.windows() < 3 ? 7 : later_ms) : outside_ms;
        pulses += 10 / step_ms;
        view.pulses = static_cast<std::uint64_t>(pulses);
        view.in_full = inside;
        StepFacts facts{266, 100, 100, step_ms * 1e6, CallKind::kSetAsync, 2};
        facts.led_call = CallKind::kSetAsync;
        facts.led_per_step = 1;
        facts.mean_step_ns = step_ms * 1e6;
        view.facts = facts;
        view.pulse_step_ns = schedule.windows() > 0 && !inside ? outside_ms * 1e6 : 0;
        schedule.next(view);
        if (schedule.windows() == 3 && third == std::chrono::nanoseconds{}) third = view.now;
    }
    return {std::chrono::duration<double>(view.now - third).count(), schedule.windows()};
}

TEST(WindowLeave, WithWorkersItWaitsUntilItIsKnownWhetherTheyKeepUp) {
    const auto [steady, three] = leaves_after(6.9, 7);
    EXPECT_EQ(three, 3u);
    EXPECT_NEAR(steady, 2, 0.2);
    const auto [starved, four] = leaves_after(13, 13);
    EXPECT_EQ(four, 4u) << "one that shows why it is slow";
    EXPECT_GT(starved, 2 + 4);
    EXPECT_LT(starved, 8);
    const auto [hidden, six] = leaves_after(13, 7);
    EXPECT_EQ(six, 6u) << "three that do not, and no more";
    EXPECT_LT(hidden, 20);
}

}  // namespace
}  // namespace millrace::record
