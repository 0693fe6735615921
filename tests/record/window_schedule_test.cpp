#include "record/window_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "record/pulse_blocks.h"

namespace millrace::record {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// A program that takes steps, its probe, and `record` that looks every 50 ms: enough of them to drive a schedule.
struct Program {
    double step_ns = 20e6;         ///< without recording
    double window_cost = 0.2;      ///< a recorded step takes 1 / (1 - this) as long
    std::uint32_t calls = 2;       ///< of the pulse call per step
    double bytes_per_step = 2000;  ///< in full
    double base_bytes_per_second = 1500;
    double start_up_ns = 0.5e9;  ///< launches that repeat nothing
    bool has_steps = true;
    CallKind call = CallKind::kEventRecord;

    ScheduleSettings settings;
    nanoseconds now{};
    double steps = 0, bytes = 0, window_steps = 0, lost_ns = 0, pulses = 0, full_pulses = 0;
    bool full = true;
    std::vector<double> windows{};  ///< steps in each
    std::vector<double> begins{};   ///< of later ones, in seconds

    void run(double total_steps, nanoseconds longest = std::chrono::hours{48}) {
        WindowSchedule schedule(settings, now);
        ProbeOrder order = schedule.order();
        ScheduleView view;
        while (steps < total_steps && now < longest) {
            const double tick = 50e6;
            now += milliseconds{50};
            bytes += base_bytes_per_second * 0.05;
            if (static_cast<double>(now.count()) > start_up_ns) advance(tick, order);
            view.now = now;
            view.obeyed = true;
            view.in_full = full;
            view.pulses = static_cast<std::uint64_t>(pulses);
            view.bytes = static_cast<std::uint64_t>(bytes);
            view.pulse_step_ns = !full && steps > 0 ? step_ns : 0;
            view.launches = static_cast<std::uint64_t>(window_steps * 100) + (full ? 10 : 0);
            view.facts.reset();
            if (has_steps && window_steps >= 4)
                view.facts = StepFacts{100,
                                       static_cast<std::uint64_t>(window_steps),
                                       static_cast<std::uint64_t>(window_steps),
                                       step_ns / (1 - window_cost),
                                       call,
                                       calls};
            const std::uint64_t before = schedule.windows();
            const bool was_in = schedule.in_window();
            const ProbeOrder next = schedule.next(view);
            if (!was_in && schedule.in_window()) begins.push_back(static_cast<double>(now.count()) * 1e-9);
            if (schedule.windows() > before) {
                windows.push_back(window_steps);
                window_steps = 0;
            }
            if (next.mode == ProbeMode::kFull && order.mode != ProbeMode::kFull) {
                full = true;
                full_pulses = 0;
                window_steps = 0;
            }
            if (next.mode != ProbeMode::kFull) full = false;
            order = next;
        }
        if (full && window_steps > 0) windows.push_back(window_steps);
        measured = schedule.cost(now);
        waiting = schedule.waiting_share();
    }

    void advance(double ns, const ProbeOrder& order) {
        while (ns > 0) {
            const double each = full ? step_ns / (1 - window_cost) : step_ns;
            // A window that ends inside this tick leaves the rest of it undisturbed.
            double taken = ns / each;
            if (full && order.full_calls > 0) taken = std::min(taken, (order.full_calls - full_pulses) / calls);
            ns -= taken * each;
            steps += taken;
            if (order.mode != ProbeMode::kOff) pulses += taken * calls;
            if (!full) continue;
            full_pulses += taken * calls;
            window_steps += taken;
            bytes += taken * bytes_per_step;
            lost_ns += taken * (each - step_ns);
            if (order.full_calls > 0 && full_pulses >= order.full_calls - 1e-6) full = false;
        }
    }

    std::optional<double> measured{};
    double waiting = 0;
};

TEST(WindowSchedule, ShortProgramHasSeveralWindows) {
    for (const double step_ns : {6.7e6, 20e6, 40e6, 220e6}) {
        Program program;
        program.step_ns = step_ns;
        program.run(150);
        EXPECT_GE(program.windows.size(), 2u) << step_ns;
        EXPECT_GE(program.windows[0], step_ns < 48e6 ? 50 : 15) << step_ns;  // of which 50 take less than three seconds
        for (const double steps : program.windows) EXPECT_GE(steps, 3) << step_ns;
    }
}

TEST(WindowSchedule, WindowsComeAtRandomTimesWithinTheBudget) {
    std::vector<double> second;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        Program program;
        program.settings.seed = seed;
        program.step_ns = 10e6;
        program.run(1e18, std::chrono::seconds{10});
        EXPECT_GE(program.windows.size(), 3u) << seed;
        EXPECT_LE(program.lost_ns, 0.45e9) << "1 % of thirty seconds, and the first window";
        ASSERT_GE(program.begins.size(), 1u);
        second.push_back(program.begins.front());
    }
    std::ranges::sort(second);
    EXPECT_GT(second.back() - second.front(), 0.4) << "seconds";
    EXPECT_GT(second[second.size() / 2] - second.front(), 0.1);
    EXPECT_GT(second.back() - second[second.size() / 2], 0.1);
}

TEST(WindowSchedule, SlowStepsMakeShortWindowsSoThatTimeIsLeftWithoutThem) {
    Program program;
    program.step_ns = 75e6;
    program.window_cost = 0.01;
    program.run(120);  // nine seconds
    ASSERT_GE(program.windows.size(), 2u);
    EXPECT_LE(program.windows[0], 41);
    EXPECT_GE(program.windows[0], 15);
    EXPECT_GE(program.windows[1], 5);
    EXPECT_LE(program.windows[1], 16);
    Program slower;
    slower.step_ns = 2e9;
    slower.window_cost = 0.01;
    slower.run(60);
    ASSERT_GE(slower.windows.size(), 2u);
    EXPECT_NEAR(slower.windows[0], 15, 1);
    EXPECT_NEAR(slower.windows[1], 5, 2);
}

TEST(WindowSchedule, AnHourOfAFastProgramStaysSmallAndCheap) {
    Program program;
    program.step_ns = 1e6;
    program.bytes_per_step = 1600;  // 200 records of 8 bytes each, packed
    program.window_cost = 0.4;
    program.run(1e18, std::chrono::hours{1});
    EXPECT_LT(program.bytes, 100e6);
    EXPECT_GT(program.windows.size(), 100u);
    EXPECT_LT(program.lost_ns, 0.011 * 3600e9);
    ASSERT_TRUE(program.measured);
    EXPECT_NEAR(program.waiting, 0.12, 0.002) << "1.2 us for each of 100 launches";
    EXPECT_LT(*program.measured, 0.02);
}

TEST(WindowSchedule, ADayOfAFastProgramStaysBelowAGigabyte) {
    for (const double bytes_per_step : {500.0, 5000.0, 100'000.0}) {
        Program program;
        program.step_ns = 1e6;
        program.bytes_per_step = bytes_per_step;
        program.run(1e18, std::chrono::hours{24});
        EXPECT_LT(program.bytes, 1e9) << bytes_per_step;
        EXPECT_GE(program.windows.size(), 3u);
        EXPECT_LT(program.lost_ns, 0.011 * 86400e9);
    }
}

TEST(WindowSchedule, CostlyWindowsGetRarerAndShorter) {
    Program cheap, dear;
    cheap.window_cost = 0.05;
    dear.window_cost = 0.8;
    cheap.settings.every = dear.settings.every = 100;
    for (Program* program : {&cheap, &dear}) program->run(1e18, std::chrono::hours{1});
    EXPECT_LT(dear.lost_ns, 0.015 * 3600e9);
    EXPECT_LT(cheap.lost_ns, 0.015 * 3600e9);
    EXPECT_LT(dear.windows.size(), cheap.windows.size());
    EXPECT_LT(dear.windows.back(), 50);
    EXPECT_GE(dear.windows.back(), 4);
    EXPECT_NEAR(*dear.measured, dear.lost_ns / 3600e9, 0.01);
}

TEST(WindowSchedule, TheCostHasWhatCountingGraphsTakes) {
    Program graphs, events;
    graphs.step_ns = events.step_ns = 1e6;
    graphs.calls = events.calls = 1;
    graphs.call = CallKind::kGraphLaunch;
    for (Program* program : {&graphs, &events}) program->run(1e18, std::chrono::minutes{10});
    ASSERT_TRUE(graphs.measured && events.measured);
    EXPECT_NEAR(*graphs.measured - *events.measured, 0.005, 0.0005) << "5 us of each ms";
}

TEST(WindowSchedule, WindowsComeEverySoManySteps) {
    Program program;
    program.window_cost = 0.01;
    program.run(20'000);
    EXPECT_GE(program.windows.size(), 10u) << "closer at first";
    EXPECT_LE(program.windows.size(), 25u);
    EXPECT_NEAR(program.windows.back(), 25, 1.5);
}

TEST(WindowSchedule, ProgramWithoutStepsIsLookedAtByTheClock) {
    Program program;
    program.has_steps = false;
    program.bytes_per_step = 20'000;
    program.run(1e18, std::chrono::hours{2});
    EXPECT_GE(program.windows.size(), 4u);
    EXPECT_LT(program.bytes, 30e6 + 2 * 36e6 + 3e6);
    // The first window goes on until it has taken its share of the allowance, or ten minutes.
    EXPECT_LT(program.windows.front(), 15e6 / 20'000 + 10);
}

/// What is counted, and what that shows, of a program that makes `calls` of a kind in each step; after the third window.
struct Counting {
    double share = 0;        ///< of the time outside of windows
    std::size_t blocks = 0;  ///< in the first five seconds
    double step_ns = 0;      ///< known after them
    std::uint64_t windows = 0;

    Counting(CallKind call, std::uint32_t calls, double each_ns, nanoseconds longest) {
        constexpr auto kTick = milliseconds{50};
        WindowSchedule schedule({}, {});
        PulseBlocks pulses(1);
        ScheduleView view;
        view.obeyed = view.in_full = true;
        view.launches = 1000;
        const auto seen = static_cast<std::uint64_t>(std::max(60.0, 300e6 / each_ns));
        view.facts = StepFacts{500, seen, seen, 1.1 * each_ns, call, calls};
        const double gap = each_ns / calls;
        double at = 0, counted = 0, rested = 0;
        nanoseconds begin{};
        for (view.now = kTick; view.now < longest; view.now += kTick) {
            const ProbeOrder before = schedule.order();
            for (; at < static_cast<double>(view.now.count()); at += gap) {
                if (before.mode == ProbeMode::kOff) continue;
                ++view.pulses;
                if (before.mode != ProbeMode::kPulse) continue;
                const bool gives = pulses.add(static_cast<std::uint64_t>(at), view.pulses).has_value();
                blocks += gives && begin > nanoseconds{} && view.now - begin < std::chrono::seconds{5} ? 1 : 0;
            }
            view.in_full = before.mode == ProbeMode::kFull && before.full_calls == 0;
            view.pulse_step_ns = pulses.step_ns();
            const ProbeOrder order = schedule.next(view);
            (void)pulses.set_call(order.pulse_call, schedule.calls_per_step(), schedule.launches_per_step());
            if (order.mode != ProbeMode::kPulse) (void)pulses.close();
            if (schedule.windows() < 3) continue;
            if (begin == nanoseconds{}) begin = view.now;
            if (view.now - begin < std::chrono::seconds{5}) step_ns = pulses.step_ns();
            (order.mode == ProbeMode::kPulse ? counted : rested) += order.mode == ProbeMode::kFull ? 0 : 1;
        }
        share = counted / (counted + rested);
        windows = schedule.windows();
    }
};

TEST(WindowSchedule, DearPulsesAreTakenNowAndThenAndShowThePace) {
    const Counting counting(CallKind::kLaunch, 500, 10e6, std::chrono::minutes{10});
    EXPECT_NEAR(counting.share, 0.2, 0.03);
    EXPECT_NEAR(counting.step_ns, 10e6, 1e5);
    EXPECT_GE(counting.blocks, 3u);
    EXPECT_GT(counting.windows, 10u);
}

TEST(WindowSchedule, ManyCallsOfSlowStepsAreCountedAllTheTime) {
    // One read per gradient: most of the blocks that two recordings take to be told apart come within five seconds.
    const Counting reads(CallKind::kCopyAsync, 130, 35e6, std::chrono::minutes{1});
    EXPECT_EQ(reads.share, 1);
    EXPECT_GE(reads.blocks, 5u);
    EXPECT_NEAR(reads.step_ns, 35e6, 35e4);
    const Counting sets(CallKind::kSetAsync, 193, 16e6, std::chrono::minutes{10});
    EXPECT_NEAR(sets.share, 0.005 * 16e6 / (193 * 500), 0.03);
    EXPECT_GE(sets.blocks, 5u);
}

TEST(WindowSchedule, FewCallsAreCountedAllTheTimeHoweverFastSteps) {
    EXPECT_EQ(Counting(CallKind::kSetAsync, 16, 1e5, std::chrono::minutes{1}).share, 1);
    EXPECT_LT(Counting(CallKind::kSetAsync, 17, 1e5, std::chrono::minutes{5}).share, 0.2);
}

TEST(WindowSchedule, ShortRunsHaveTheBlocksThatCompareNeeds) {
    // So many launches in so short a step are counted in a twentieth of the time, but not at first.
    const Counting launches(CallKind::kLaunch, 1000, 5e6, std::chrono::seconds{9});
    EXPECT_LT(launches.share, 0.9);
    EXPECT_GE(launches.blocks, 7u);
}

TEST(WindowSchedule, FirstWindowShowsEveryLaunchsSiteForAWhile) {
    WindowSchedule schedule({}, {});
    EXPECT_EQ(schedule.order().mode, ProbeMode::kFull);
    EXPECT_GT(schedule.order().sites_calls, 1000u);
    ScheduleView view;
    view.now = milliseconds{100};
    view.launches = 1000;
    view.facts = StepFacts{100, 12, 12, 3e6, CallKind::kCopyAsync, 1};
    const ProbeOrder first = schedule.order();
    EXPECT_EQ(schedule.next(view), first) << "another order would cut the window in two";
    EXPECT_TRUE(schedule.in_window());
    view.now = milliseconds{200};
    view.facts->steps = view.facts->steady_steps = 100;
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kFull) << "too soon: a long inner loop may pass for steps";
    view.now = milliseconds{500};
    EXPECT_EQ(schedule.next(view).mode, ProbeMode::kPulse);
    EXPECT_EQ(schedule.order().pulse_call, CallKind::kCopyAsync);
    EXPECT_EQ(schedule.order().pulse_stride, 1u);
}

TEST(WindowSchedule, StepsThatALoopTellsEndTheFirstWindowThoughTheyDifferInLength) {
    for (const StepSource source : {StepSource::kUpdates, StepSource::kLoop, StepSource::kPeriod}) {
        WindowSchedule schedule({}, {});
        ScheduleView view;
        view.now = milliseconds{100};
        view.launches = 1000;
        view.facts = StepFacts{100, 20, 1, 40e6, CallKind::kCopyAsync, 1};
        view.facts->source = source;
        schedule.next(view);
        view.now = milliseconds{900};
        schedule.next(view);
        EXPECT_EQ(schedule.in_window(), source == StepSource::kPeriod);
    }
}

TEST(WindowSchedule, FewerStepsDoForEarlyWindowsWhereEachHasManyLaunches) {
    struct Expected {
        std::uint64_t launches;
        std::uint32_t first, next, sited;  ///< steps
    };
    for (const auto& [launches, first, next, sited] :
         {Expected{160, 50, 25, 10}, {266, 31, 15, 10}, {4'000, 15, 5, 5}, {5'000, 12, 5, 5}, {12'001, 5, 5, 4}}) {
        WindowSchedule schedule({}, {});
        ScheduleView view;
        view.obeyed = true;
        view.now = milliseconds{100};
        view.launches = 1000;
        view.facts = StepFacts{launches, 1, 1, static_cast<double>(launches) * 26e3, CallKind::kSetAsync, 1};
        schedule.next(view);
        view.now = std::chrono::seconds{1};
        std::uint64_t steps = 1;
        for (; steps < 60 && schedule.in_window(); ++steps) {
            view.facts->steps = view.facts->steady_steps = steps;
            schedule.next(view);
        }
        EXPECT_EQ(steps - 1, first) << launches;
        view.pulses = 100;
        view.pulse_step_ns = 0.9 * view.facts->step_ns;
        view.now += std::chrono::seconds{5};
        ASSERT_EQ(schedule.next(view).mode, ProbeMode::kFull);
        EXPECT_EQ(schedule.order().full_calls, next) << launches;
        EXPECT_EQ(schedule.order().sites_calls, sited) << launches;
    }
}

}  // namespace
}  // namespace millrace::record
