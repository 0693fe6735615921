#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr int kReads = 67;  ///< of a step

/// A value per parameter is read one by one at line 30, for most of the step.
void norms_in_parts(SimulatedProgram& p, int, bool cured) {
    train(p, {8, 100});
    p.launch("dropout_kernel", 20);
    p.launch("sum_kernel", 20);
    p.at({torch_line("_tensor.py", "norm"), user_line(30, "largest")});
    for (int i = 0; i < (cured ? 1 : kReads); ++i) {
        p.launch("abs_kernel", 3);
        p.launch("reduce_kernel", 3);
        p.item();
    }
}

/// Keeps what `windows` show.
Timeline seen_in(Timeline timeline, std::vector<Window> windows) {
    const auto outside = [&](const auto& entry) {
        return std::none_of(windows.begin(), windows.end(),
                            [&](const Window& window) { return entry.begin >= window.begin && entry.begin < window.end; });
    };
    std::erase_if(timeline.calls, outside);
    std::erase_if(timeline.work, outside);
    timeline.windows = std::move(windows);
    return timeline;
}

/// When the host comes to the loop of reads: `nth` of its turns of all steps.
Time turn(const Timeline& timeline, int nth) {
    for (const Call& call : timeline.calls)
        if (call.kind == CallKind::kStreamSync && nth-- == 0) return call.begin - 1'000;
    return 0;
}

/// A long window, and short ones of a recorder that took turns of the loop for steps and counted those between windows.
Timeline with_short_windows(const Simulation& program, int steps, std::vector<std::pair<int, int>> turns) {
    std::vector<Window> windows{{0, turn(program.timeline, 20 * kReads), kProcess}};
    for (const auto& [first, end] : turns)
        windows.push_back({turn(program.timeline, first), turn(program.timeline, end), kProcess});
    Timeline timeline = seen_in(program.timeline, std::move(windows));
    for (Time i = 0; i < 4; ++i) {
        const Time begin = timeline.windows.back().end + i * 1'000'000'000;
        const auto length = static_cast<Time>(steps * program.step_ms * 1e6);
        timeline.blocks.push_back({begin, begin + length, 1.0 * steps * kReads, std::nullopt, CallKind::kStreamSync, 1});
        timeline.blocks.push_back({begin + length, begin + length + 1'000'000, 20, std::nullopt, CallKind::kStreamSync, 1});
    }
    return timeline;
}

TEST(WindowParts, TurnsOfALoopInShortWindowsAreNoSteps) {
    const Simulation sick = simulate(norms_in_parts, false), cured = simulate(norms_in_parts, true);
    // Inside of one step's reads, and from one step's reads to the next one's.
    const Diagnosis diagnosis = diagnose(with_short_windows(sick, 50,
                                                            {{25 * kReads + 3, 25 * kReads + 53},
                                                             {30 * kReads + 7, 30 * kReads + 59},
                                                             {35 * kReads - 20, 35 * kReads + 20},
                                                             {40 * kReads + 9, 40 * kReads + 57}}));
    const double truth = sick.step_ms - cured.step_ms;
    SCOPED_TRACE(fmt::format("truth {:.3f} of {:.3f} ms\n{}", truth, sick.step_ms, told(diagnosis)));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kHostSync);
    EXPECT_EQ(diagnosis.findings.front().where->line, 30);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, truth, 0.25 * truth);
    EXPECT_NEAR(diagnosis.step_ms, sick.step_ms, 0.05 * sick.step_ms);
    EXPECT_LT(diagnosis.steps, 20u);
    EXPECT_FALSE(diagnosis.undisturbed_step_ms) << "turns were counted";
    EXPECT_NE(told(diagnosis).find("in 4 of 5 windows no step returns as in the others"), std::string::npos);
}

TEST(WindowParts, TurnsThatWereCountedAreNoStepsWithoutShortWindowsEither) {
    const Diagnosis diagnosis = diagnose(with_short_windows(simulate(norms_in_parts, false), 50, {}));
    EXPECT_TRUE(diagnosis.blocks.empty());
    EXPECT_NE(told(diagnosis).find("the pace without recording is not known"), std::string::npos) << told(diagnosis);
}

TEST(WindowParts, AWindowThatTheEndCutDoesNotChangeWhatWasCounted) {
    const Simulation program = simulate(
        [](SimulatedProgram& p, int, bool) {
            train(p, {8, 400});
            p.item();
            p.item();
        },
        false);
    // Two of these calls come in a step, as was counted; the second window has one of them.
    Timeline timeline = seen_in(program.timeline, {{0, turn(program.timeline, 60), kProcess},
                                                   {turn(program.timeline, 70), turn(program.timeline, 73), kProcess}});
    const auto second = Time{1'000'000'000}, begin = timeline.windows.back().end;
    for (Time i = 0; i < 6; ++i)
        timeline.blocks.push_back(
            {begin + i * second, begin + (i + 1) * second, 1'000 / program.step_ms, std::nullopt, CallKind::kStreamSync, 2});
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_NE(told(diagnosis).find("in 1 of 2 windows no step returns"), std::string::npos) << told(diagnosis);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_NEAR(*diagnosis.undisturbed_step_ms, program.step_ms, 0.02 * program.step_ms);
}

TEST(WindowParts, ShortWindowsOfOtherWorkStay) {
    // Few jobs, but a step of its own: most kinds in a smaller network, or few that the long window does not have.
    const std::vector<std::string> most{
        "gemm_bf16",  "gelu_elementwise_kernel",  "softmax", "gemm_dgrad", "dgelu_elementwise_kernel",
        "gemm_wgrad", "multi_tensor_apply_kernel"};
    const std::vector<std::string> others{"encode", "decode", "multi_tensor_apply_kernel"};
    const auto changes = [](const std::vector<std::string>& kinds) {
        return [&kinds](SimulatedProgram& p, int step, bool) {
            if (step < 30) return norms_in_parts(p, step, false);
            p.at(40);
            for (const std::string& name : kinds) p.launch(name, 100);
            p.stream_sync();
        };
    };
    for (const auto* kinds : {&most, &others}) {
        const Simulation program = simulate(changes(*kinds), false, 50);
        const int before = 30 * kReads;
        const Diagnosis diagnosis = diagnose(
            seen_in(program.timeline, {{0, turn(program.timeline, 20 * kReads), kProcess},
                                       {turn(program.timeline, before + 1), turn(program.timeline, before + 17), kProcess}}));
        SCOPED_TRACE(told(diagnosis));
        EXPECT_GT(diagnosis.steps, 25u);
        EXPECT_EQ(told(diagnosis).find("no step returns"), std::string::npos);
    }
}

TEST(WindowParts, AStepThatBecameAGraphIsNoPart) {
    const Simulation program = simulate(
        [](SimulatedProgram& p, int step, bool) {
            p.at(20);
            for (int i = 0; step < 30 && i < 100; ++i)
                p.launch(i == 99 ? "multi_tensor_apply_kernel" : fmt::format("node{}", i / 20), 20);
            if (step >= 30) p.graph(2'000, 100, true);
            p.stream_sync();
        },
        false, 60);
    const Diagnosis diagnosis =
        diagnose(seen_in(program.timeline, {{0, turn(program.timeline, 28), kProcess},
                                            {turn(program.timeline, 35), turn(program.timeline, 47), kProcess}}));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_GT(diagnosis.steps, 30u);
    EXPECT_EQ(told(diagnosis).find("no step returns"), std::string::npos);
}

/// Start-up in which nothing returns, and training after it, with a window each.
Timeline start_up_and_training(bool trains) {
    SimulatedProgram program({});
    for (int i = 0; i < 701; ++i) {
        program.at({user_line(5, "load")});
        program.launch("start_up" + std::to_string(i), 20);
        program.work(500);
    }
    const auto between = static_cast<Time>(program.finish_us() * 1e3) + 1;
    program.work(1'000);
    for (int i = 0; i < 23 && trains; ++i) train(program, {});
    program.record_window();
    Timeline timeline = program.take();
    timeline.windows.push_back(timeline.windows.front());
    timeline.windows[0].end = timeline.windows[1].begin = between;
    return timeline;
}

TEST(ShapelessWindows, CountOnlyWhereNoOtherHasSteps) {
    for (const bool trains : {true, false}) {
        const Diagnosis diagnosis = diagnose(start_up_and_training(trains));
        const auto remarked = [&](const char* words) { return told(diagnosis).find(words) != std::string::npos; };
        EXPECT_EQ(remarked("a window counts as one step"), !trains) << told(diagnosis);
        EXPECT_EQ(remarked("in 1 of 2 windows no step returns"), trains) << told(diagnosis);
        EXPECT_GE(diagnosis.steps, trains ? 20u : 1u);
        EXPECT_NEAR(sum_of(diagnosis), trains ? 15.4 : 370, trains ? 0.5 : 20) << told(diagnosis);
    }
}

TEST(ShapelessWindows, AreNoSurerBehindAnEmptyOne) {
    Timeline timeline = start_up_and_training(false);
    const Diagnosis alone = diagnose(timeline);
    timeline.windows.insert(timeline.windows.begin(), {-2'000'000, -1'000'000, kProcess});
    const Diagnosis behind = diagnose(timeline);
    ASSERT_FALSE(alone.findings.empty());
    ASSERT_FALSE(behind.findings.empty());
    EXPECT_EQ(behind.findings.front().confidence, alone.findings.front().confidence) << told(behind);
}

}  // namespace
}  // namespace millrace::diagnose
