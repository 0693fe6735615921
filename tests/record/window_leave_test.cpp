// When CUPTI is asked to leave the process, and what becomes of windows then.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

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
        view.pulses += 50 * facts.pulse.per_step;
        view.in_full = false;
        schedule.next(view);
    }
    return schedule.order();
}

TEST(WindowLeave, CuptiLeavesAfterEarlyWindowsWhereItsPresenceCosts) {
    StepFacts facts{266, 100, 100, 7e6, CallKind::kSetAsync, 2};
    facts.led.call = CallKind::kEventRecord;
    facts.led.per_step = 3;
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
    facts.led.per_step = 0;
    EXPECT_FALSE(order_after(facts, 3).detach) << "nobody would count";
}

/// How many windows there are in 200 s of a program that CUPTI slows down between them.
std::uint64_t windows_of_dear_program(bool stays, bool may_leave) {
    ScheduleSettings settings;
    settings.every = 100;
    settings.may_leave = may_leave;
    WindowSchedule schedule(settings, {});
    ScheduleView view;
    view.obeyed = true;
    view.launches = 1000;
    view.pulse_step_ns = 6.9e6;
    StepFacts facts{266, 100, 100, 7e6, CallKind::kSetAsync, 2};
    facts.led.call = CallKind::kSetAsync;
    facts.led.per_step = 1;
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
    return schedule.windows();
}

TEST(WindowLeave, ThereAreNoMoreWindowsOnceCuptiHasLeft) {
    EXPECT_EQ(windows_of_dear_program(false, true), 3u);
    EXPECT_GT(windows_of_dear_program(true, true), 10u) << "where it cannot leave";
    EXPECT_GT(windows_of_dear_program(false, false), 10u) << "where it was not asked to";
    EXPECT_FALSE(ScheduleSettings{}.may_leave);
}

}  // namespace
}  // namespace millrace::record
