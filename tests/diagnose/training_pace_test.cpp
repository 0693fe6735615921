#include "diagnose/replay/study.h"

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr int kStep = 17;    ///< launches of a step
constexpr int kBetween = 7;  ///< steps from one evaluation to the next
constexpr int kMany = 1501;  ///< launches of an evaluation

/// Sixteen products and an update; after every seventh step so many launches of another kind.
StepBody body(int evaluating) {
    return [=](SimulatedProgram& p, int step, bool) {
        p.at(20);
        for (int i = 0; i < kStep - 1; ++i) p.launch(fmt::format("gemm{}", i), 400);
        p.launch("multi_tensor_apply_kernel", 100);
        p.at({user_line(40, "evaluate"), user_line(50)});
        for (int i = 0; step % kBetween == kBetween - 1 && i < evaluating; ++i) p.launch(fmt::format("judge{}", i % 3), 30);
    };
}

/// What becomes of ten steps that were counted after the window by so many calls each.
double counted(int evaluating, CallKind call, double calls_per_step) {
    Simulation program = simulate(body(evaluating), false, 150);
    const Time begin = program.timeline.windows.back().end + 1'000'000;
    program.timeline.blocks.push_back({begin, begin + 700'000'000, 10, std::nullopt, call, calls_per_step});
    const Diagnosis diagnosis = diagnose(program.timeline);
    const bool doubted = told(diagnosis).find("the pace without recording is not known") != std::string::npos;
    EXPECT_EQ(diagnosis.blocks.empty(), doubted);
    EXPECT_TRUE(!doubted || (!diagnosis.undisturbed_step_ms && !diagnosis.overhead_share)) << "nothing is made of it";
    return diagnosis.blocks.empty() ? 0 : diagnosis.blocks.front().steps;
}

TEST(TrainingPace, AnOrdinaryProgramsStepsAreCountedAsTheyAre) {
    EXPECT_EQ(counted(0, CallKind::kLaunch, kStep), 10);
    EXPECT_EQ(counted(0, CallKind::kOther, 0), 10) << "nobody knows by what";
    EXPECT_EQ(counted(0, CallKind::kGraphLaunch, 1), 10) << "no window has such a call";
}

TEST(TrainingPace, AllFromOneEvaluationToTheNextIsNoStep) {
    EXPECT_EQ(counted(kMany, CallKind::kLaunch, kStep * kBetween + kMany), 0);
    EXPECT_EQ(counted(kMany, CallKind::kLaunch, kStep), 0) << "its calls were counted as steps, too: nobody knows how many";
}

TEST(TrainingPace, OfRanksDoNotMix) {
    Simulation program = simulate(body(0), false, 150);
    const Time begin = program.timeline.windows.back().end + 1'000'000, each = 700'000'000;
    for (Time i = 0; i < 5; ++i) {
        program.timeline.blocks.push_back(
            {begin + i * each, begin + (i + 1) * each, 100, std::nullopt, CallKind::kLaunch, kStep, kProcess});
        program.timeline.blocks.push_back(
            {begin + i * each + 1, begin + (i + 1) * each, 300, std::nullopt, CallKind::kLaunch, kStep, 77});
    }
    const Diagnosis diagnosis = diagnose(program.timeline);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_DOUBLE_EQ(*diagnosis.undisturbed_step_ms, 7);
    EXPECT_EQ(diagnosis.blocks.size(), 5u);
}

TEST(TrainingPace, SeveralStepsThatWereCountedAsOneAreNoPace) {
    EXPECT_EQ(counted(0, CallKind::kLaunch, 3 * kStep), 0);
    EXPECT_EQ(counted(0, CallKind::kLaunch, 2.5 * kStep), 0) << "two and a half are none";
}

TEST(TrainingPace, TurnsOfALoopThatPassedForStepsAreNoPace) {
    // 3.5 turns a step, as a recorder counts that sees no updates: a block of ten of them would be far too fast.
    EXPECT_EQ(counted(0, CallKind::kLaunch, kStep / 3.5), 0);
    EXPECT_EQ(counted(0, CallKind::kLaunch, 1.01 * kStep), 10) << "within 2 %";
    EXPECT_EQ(counted(0, CallKind::kLaunch, 1.05 * kStep), 0);
}

}  // namespace
}  // namespace millrace::diagnose
