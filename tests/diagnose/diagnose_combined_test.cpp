#include <cmath>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

/// The host chooses rows, trains, and reads the loss.
void read_every_step(SimulatedProgram& p, int, bool) {
    p.at({user_line(12, "choose_rows")});
    p.work(5'000);
    train(p, {12, 400});
    p.at(31);
    p.item();
}

TEST(Combined, AFlushAndAReadHideEachOther) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at({user_line(12, "choose_rows")});
        p.work(4'000);
        train(p, {12, 400});
        p.at(31);
        if (!cured) p.item();
        p.at({torch_line("cuda/memory.py", "empty_cache"), user_line(33)});
        if (!cured)
            for (int i = 0; i < 7; ++i) p.free_memory();
        p.at(20);
        for (int i = 0; i < 7 && !cured; ++i) p.allocate();
    };
    const Simulation sick = simulate(body, false), cured = simulate(body, true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(fmt::format("truth {}\n{}", sick.step_ms - cured.step_ms, told(diagnosis)));
    ASSERT_NE(finding_of(diagnosis, Kind::kHostSync), nullptr);
    ASSERT_NE(finding_of(diagnosis, Kind::kAllocatorChurn), nullptr);
    const double told_of =
        finding_of(diagnosis, Kind::kHostSync)->lost_ms_per_step + finding_of(diagnosis, Kind::kAllocatorChurn)->lost_ms_per_step;
    EXPECT_NEAR(told_of, sick.step_ms - cured.step_ms, 0.1 * (sick.step_ms - cured.step_ms));
}

TEST(Combined, ASlowHostIsLaunchBoundWhateverElseItReads) {
    SimulatedProgram::Traits slow;
    slow.launch_us = 40;
    slow.operator_us = 80;
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        train(p, {40, 50});
        p.at(31);
        p.item();
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false, 60, slow).timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLaunchBound) << told(diagnosis);
    EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kLaunchBound)],
              diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kHostSync)]);
}

TEST(Combined, WhatIsDroppedLowersConfidence) {
    Timeline timeline = simulate(read_every_step, false).timeline;
    const double sure = diagnose(timeline).findings.at(0).confidence;
    timeline.dropped = 17;
    EXPECT_LT(diagnose(timeline).findings.at(0).confidence, sure);
    EXPECT_EQ(diagnose(timeline).dropped_records, 17u);
}

TEST(Combined, AWindowThatOpensWhileTheHostIsAheadIsReadTheSame) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(14, "augment")});
        p.work(6'000);
        train(p, {12, 400});
    };
    Timeline timeline = simulate(body, true, 90).timeline;
    const Time cut = timeline.windows.front().end / 3;
    timeline.windows.front().begin = cut;
    std::erase_if(timeline.calls, [&](const Call& call) { return call.begin < cut; });
    std::erase_if(timeline.work, [&](const Work& work) { return work.begin < cut; });
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_TRUE(diagnosis.healthy) << told(diagnosis);
    EXPECT_GT(diagnosis.steps, 20u);
}

TEST(Combined, WithoutSamplesAReadIsStillFoundAndHostWorkStaysUnexplained) {
    Timeline read = simulate(
                        [](SimulatedProgram& p, int, bool) {
                            p.at({user_line(12, "choose_rows")});
                            p.work(5'000);
                            train(p, {12, 400});
                            p.at(31);
                            p.item();
                        },
                        false)
                        .timeline;
    read.samples.clear();
    EXPECT_EQ(diagnose(read).findings.at(0).kind, Kind::kHostSync);
    Timeline busy = simulate(
                        [](SimulatedProgram& p, int, bool) {
                            p.at({user_line(12, "augment")});
                            p.work(30'000);
                            train(p, {6, 300});
                        },
                        false)
                        .timeline;
    busy.samples.clear();
    const Diagnosis diagnosis = diagnose(busy);
    EXPECT_FALSE(diagnosis.healthy);
    EXPECT_TRUE(diagnosis.findings.empty()) << told(diagnosis);
    EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 20);
}

TEST(Combined, LinesOfLaunchesInSomeStepsSuffice) {
    Timeline timeline = simulate(
                            [](SimulatedProgram& p, int, bool) {
                                p.at({user_line(14, "augment"), user_line(30)});
                                p.work(30'000);
                                train(p, {8, 400});
                            },
                            false)
                            .timeline;
    const Time cut = timeline.windows.front().end / 4;
    for (Call& call : timeline.calls)
        if (call.kind == CallKind::kLaunch && call.begin > cut) call.stack = kNoStack;
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kPythonWork) << told(diagnosis);
    EXPECT_EQ(diagnosis.findings.front().where->line, 14);
}

TEST(Combined, AtItsPowerLimitAGpuGivesBackLessThanItIdles) {
    Timeline timeline = simulate(read_every_step, false).timeline;
    const Diagnosis free = diagnose(timeline);
    MachineSample sample;
    sample.power_watts = 350;
    sample.power_limit_watts = 700;
    timeline.machine.push_back(sample);
    const Diagnosis below = diagnose(timeline);
    EXPECT_DOUBLE_EQ(below.findings.at(0).lost_ms_per_step, free.findings.at(0).lost_ms_per_step);
    timeline.machine.front().power_watts = 700;
    const Diagnosis capped = diagnose(timeline);
    ASSERT_FALSE(capped.findings.empty());
    // Busy share b to about 1: kernels take b^(-1/2.2) times as long.
    const double busy = free.busy_share * free.step_ms;
    const double expected = free.findings.at(0).lost_ms_per_step - busy * (std::pow(0.995 / free.busy_share, 1 / 2.2) - 1);
    EXPECT_NEAR(capped.findings.at(0).lost_ms_per_step, expected, 0.05 * expected) << told(capped);
}

/// Reads in a loop: the GPU idles after each.
void train_and_read(SimulatedProgram& p, int, bool) {
    train(p, {6, 400});
    for (int i = 0; i < 31; ++i) {
        p.at({user_line(29)});
        p.launch("reduce_kernel", 60);
        p.at({user_line(30)});
        p.item();
    }
}

void sample_power(Timeline& timeline, Time time, double watts) {
    MachineSample sample;
    sample.time = time;
    sample.power_watts = watts;
    sample.power_limit_watts = 700;
    timeline.machine.push_back(sample);
}

TEST(Combined, PowerOfWhatRanBeforeIsNotTheProgramsOwn) {
    Timeline timeline = simulate(train_and_read, false).timeline;
    const double free = diagnose(timeline).findings.at(0).lost_ms_per_step;
    for (int i = 0; i < 5; ++i) sample_power(timeline, -5'000'000'000 + i * 1'000'000'000ll, 700);
    const Time end = timeline.windows.front().end;
    for (int i = 0; i < 7; ++i) sample_power(timeline, end / 8 * (i + 1), i == 0 ? 150 : 400);
    EXPECT_DOUBLE_EQ(diagnose(timeline).findings.at(0).lost_ms_per_step, free);
    for (MachineSample& sample : timeline.machine) sample.power_watts = 700;
    EXPECT_LT(diagnose(timeline).findings.at(0).lost_ms_per_step, 0.9 * free);
}

TEST(Combined, PowerGoesWithTheBusyShareOutsideOfWindows) {
    SimulatedProgram::Traits recorded;
    recorded.recording_us = 12;
    const Simulation plain = simulate(train_and_read, false);
    Timeline alone = plain.timeline, timeline = simulate(train_and_read, false, 60, recorded).timeline;
    const Time end = timeline.windows.front().end;
    for (Timeline* each : {&alone, &timeline}) sample_power(*each, 0, 700);
    timeline.blocks = {{end, end + 20'000'000'000, 20e3 / plain.step_ms}};
    const Diagnosis known = diagnose(timeline), expected = diagnose(alone);
    const double truth = expected.findings.at(0).lost_ms_per_step;
    EXPECT_NEAR(known.findings.at(0).lost_ms_per_step, truth, 0.03 * truth) << told(known) << told(expected);
}

TEST(Combined, WhatAProfilersNotesTakeIsTakenOff) {
    const StepBody body = [](SimulatedProgram& p, int, bool) { train(p, {30, 5}); };
    SimulatedProgram::Traits noted;
    noted.recording_us = static_cast<double>(Policy{}.profiler_call + 2 * Policy{}.profiler_note) * 1e-3;
    Timeline timeline = simulate(body, false, 60, noted).timeline;
    timeline.source = Source::kKineto;
    const Diagnosis before = diagnose(timeline);
    for (Call& call : timeline.calls) call.notes = 2;
    const Diagnosis after = diagnose(timeline);
    SCOPED_TRACE(told(before) + told(after));
    const Simulation plain = simulate(body, false);
    ASSERT_FALSE(before.findings.empty());
    ASSERT_FALSE(after.findings.empty());
    const double lost = diagnose(plain.timeline).findings.at(0).lost_ms_per_step;
    EXPECT_NEAR(after.findings.front().lost_ms_per_step, lost, 0.1 * lost);
    EXPECT_GT(before.findings.front().lost_ms_per_step, 1.2 * lost);
    EXPECT_LT(after.findings.front().confidence, before.findings.front().confidence);
    EXPECT_NE(told(after).find("noting calls"), std::string::npos);
}

TEST(Combined, WorkWithTheNumberOfAnotherCallFindsItsOwn) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(12, "choose_rows")});
        p.work(5'000);
        p.upload(1e5, true);
        train(p, {12, 400});
        p.at(31);
        p.item();
    };
    Timeline timeline = simulate(body, false).timeline;
    const double lost = diagnose(timeline).findings.at(0).lost_ms_per_step;
    std::vector<std::uint32_t> stale;
    for (const Call& call : timeline.calls)
        if (call.thread == kMainThread && call.correlation != 0) stale.push_back(call.correlation);
    for (Work& work : timeline.work)
        if (std::find(stale.begin(), stale.end(), work.correlation) != stale.end()) work.correlation = stale.front();
    const Diagnosis mended = diagnose(timeline);
    ASSERT_FALSE(mended.findings.empty());
    EXPECT_EQ(mended.findings.at(0).kind, Kind::kHostSync);
    EXPECT_NEAR(mended.findings.at(0).lost_ms_per_step, lost, 0.05 * lost) << told(mended);
}

}  // namespace
}  // namespace millrace::diagnose
