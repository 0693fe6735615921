// Evaluation between training steps: where it is, why it is slow, what it costs.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr int kLayers = 8;

/// The model's line is the same for training and evaluation; `callers` from the inside out.
void forward(SimulatedProgram& p, double kernel_us, const Stack& callers) {
    Stack stack{torch_line("nn/functional.py", "linear"), {"/home/u/model.py", 81, "forward", false}};
    stack.insert(stack.end(), callers.begin(), callers.end());
    p.at(stack);
    for (int i = 0; i < kLayers; ++i) p.launch(fmt::format("gemm_forward{}", i % 3), kernel_us);
}

void learn(SimulatedProgram& p, const Stack& optimizer, int backward_line) {
    p.begin_backward(backward_line);
    for (int i = 0; i < kLayers; ++i) p.launch(fmt::format("gemm_backward{}", i % 3), 800);
    p.end_backward();
    Stack stack{torch_line("optim/adamw.py", "step")};
    stack.insert(stack.end(), optimizer.begin(), optimizer.end());
    p.at(stack);
    p.launch("multi_tensor_apply_kernel", 200);
}

void train_step(SimulatedProgram& p) {
    forward(p, 400, {user_line(30, "train_step"), user_line(50)});
    learn(p, {user_line(32, "train_step"), user_line(50)}, 31);
}

/// 3 us of each kernel are no work, and rows take 10 ns each.
void judge(SimulatedProgram& p, int rows, int batch, const Stack& callers) {
    for (int done = 0; done < rows; done += batch) {
        forward(p, 3 + 0.01 * batch, callers);
        p.at(callers);
        p.launch("argmax_compare_sum", 3 + 0.001 * batch);
    }
}

const Stack kEvaluate{user_line(18, "evaluate"), user_line(52)};

/// In crumbs of 67 rows, or all at once.
void crumbs(SimulatedProgram& p, int step, bool cured) {
    train_step(p);
    if (step % 10 == 9) judge(p, 16'750, cured ? 16'750 : 67, kEvaluate);
}

const Finding* told_of(const Diagnosis& diagnosis) {
    const Finding* found = finding_of(diagnosis, Kind::kSlowEvaluation);
    EXPECT_NE(found, nullptr) << diagnosis.evaluation_ms << " ms of evaluation\n" << told(diagnosis);
    return found;
}

TEST(Evaluation, AWindowWithinOneShowsNoSteps) {
    SimulatedProgram program({});
    for (int step = 0; step < 40; ++step) train_step(program);
    const auto between = static_cast<Time>(program.finish_us() * 1e3);
    for (int batch = 0; batch < 300; ++batch) {
        judge(program, 67, 67, kEvaluate);
        program.item();
    }
    program.record_window();
    Timeline timeline = program.take();
    const Time end = timeline.windows.back().end;
    timeline.windows = {{0, between, kProcess}, {between, end, kProcess}};
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_LT(diagnosis.steps, 40u) << told(diagnosis);
    EXPECT_GT(diagnosis.steps, 30u) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kHostSync), nullptr) << told(diagnosis);
}

TEST(Evaluation, WhatLoadsModulesBetweenStepsIsNone) {
    // cuDNN tries its algorithms for a batch of another size, in the training loop.
    const auto program = [](bool loads) {
        SimulatedProgram p({});
        for (int step = 0; step < 60; ++step) {
            if (step == 40) {
                const Stack callers{user_line(30, "train_step"), user_line(50)};
                judge(p, 20'000, 67, callers);
                if (loads) p.load_module();
                judge(p, 20'000, 67, callers);
            }
            train_step(p);
        }
        p.record_window();
        return diagnose(p.take());
    };
    EXPECT_GT(program(false).evaluation_ms, 0);
    const Diagnosis diagnosis = program(true);
    EXPECT_EQ(diagnosis.evaluation_ms, 0) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kSlowEvaluation), nullptr) << told(diagnosis);
}

TEST(Evaluation, InCrumbsIsToldByItsOwnLineAndNotTheModels) {
    expect_case(crumbs, Kind::kSlowEvaluation, 18, {}, 123);
    const Diagnosis diagnosis = diagnose(simulate(crumbs, false, 123).timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found && found->where);
    EXPECT_EQ(found->where->function, "evaluate");
    ASSERT_EQ(found->stack.size(), 2);
    EXPECT_EQ(found->stack[1].line, 52);
    EXPECT_NE(found->fix.find("larger batches"), std::string::npos) << found->fix;
    EXPECT_NE(found->evidence.find("2250 kernels"), std::string::npos) << found->evidence;
}

TEST(Evaluation, InLargeBatchesIsNoFinding) {
    const Diagnosis diagnosis = diagnose(simulate(crumbs, true, 123).timeline);
    EXPECT_EQ(finding_of(diagnosis, Kind::kSlowEvaluation), nullptr) << told(diagnosis);
    EXPECT_GT(diagnosis.evaluation_ms, 0);
}

TEST(Evaluation, AddsItsTimeToTheSteps) {
    for (const bool cured : {false, true}) {
        const Simulation program = simulate(crumbs, cured, 123);
        const Diagnosis diagnosis = diagnose(program.timeline);
        EXPECT_NEAR(sum_of(diagnosis) + diagnosis.evaluation_ms, program.step_ms, 0.03 * program.step_ms) << told(diagnosis);
    }
    EXPECT_EQ(diagnose(simulate([](SimulatedProgram& p, int, bool) { train_step(p); }, false).timeline).evaluation_ms, 0);
}

TEST(Evaluation, ThatStandsInSeveralLinesOfTheMainLoopIsToldByTheBusiest) {
    const auto body = [](SimulatedProgram& p, int step, bool) {
        train_step(p);
        for (int i = 0; step % 10 == 9 && i < 211; ++i) {
            forward(p, 4, {user_line(54)});
            for (int more = 0; more < 5; ++more) p.at(more < 3 ? 55 : 56), p.launch("score", 3);
        }
    };
    const Finding* found = nullptr;
    const Diagnosis diagnosis = diagnose(simulate(body, false, 123).timeline);
    ASSERT_TRUE((found = told_of(diagnosis)) && found->where);
    EXPECT_EQ(found->where->line, 54) << "61 % of the launches, and no line has 80 %";
}

/// One function for both, called from `line`.
void run_batch(SimulatedProgram& p, double kernel_us, bool train, int line) {
    forward(p, kernel_us, {user_line(12, "run_epoch"), user_line(line)});
    if (train) learn(p, {user_line(15, "run_epoch"), user_line(line)}, 14);
}

TEST(Evaluation, OfAFunctionThatTrainsTooIsToldByTheLineThatCallsIt) {
    const auto body = [](SimulatedProgram& p, int step, bool) {
        run_batch(p, 400, true, 60);
        for (int i = 0; step % 10 == 9 && i < 811; ++i) run_batch(p, 4, false, 61);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false, 123).timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found && found->where);
    EXPECT_EQ(found->where->line, 61);
}

TEST(Evaluation, ThatSharesAllItsLinesIsToldWhereTrainingDoesMore) {
    const auto body = [](SimulatedProgram& p, int step, bool) {
        run_batch(p, 400, true, 60);
        for (int i = 0; step % 10 == 9 && i < 811; ++i) run_batch(p, 4, false, 60);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false, 123).timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found && found->where);
    EXPECT_EQ(found->where->line, 12) << "training goes on to lines 14 and 15 of the same function, the model has one line";
    EXPECT_EQ(found->where->function, "run_epoch");
}

TEST(Evaluation, WithoutStacksOfItsLaunchesIsFoundBySamples) {
    Timeline timeline = simulate(crumbs, false, 123).timeline;
    for (Call& call : timeline.calls) {
        const Stack& stack = timeline.stacks[call.stack];
        const auto evaluates = [](const Frame& frame) { return frame.function == "evaluate"; };
        if (std::any_of(stack.begin(), stack.end(), evaluates)) call.stack = kNoStack;
    }
    const Diagnosis diagnosis = diagnose(timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found && found->where);
    EXPECT_EQ(found->where->line, 18);
    timeline.samples.clear();
    const Diagnosis blind = diagnose(timeline);
    const Finding* without = told_of(blind);
    ASSERT_TRUE(without);
    EXPECT_FALSE(without->where);
    EXPECT_NEAR(without->lost_ms_per_step, found->lost_ms_per_step, 0.1 * found->lost_ms_per_step);
}

TEST(Evaluation, ThatWaitsForItsLoaderIsToldSo) {
    const auto body = [](SimulatedProgram& p, int step, bool cured) {
        train_step(p);
        for (int i = 0; step % 10 == 9 && i < 7; ++i) {
            p.at({{"/usr/lib/python3.11/queue.py", 171, "get", false},
                  torch_line("utils/data/dataloader.py", "__next__"),
                  user_line(17, "evaluate"),
                  user_line(52)});
            if (!cured) p.work(40'000, 'S', "futex");
            forward(p, 300, kEvaluate);
        }
    };
    const Simulation sick = simulate(body, false, 123), cured = simulate(body, true, 123);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found);
    EXPECT_NE(found->fix.find("num_workers"), std::string::npos) << found->fix << found->evidence;
    EXPECT_NEAR(found->lost_ms_per_step, sick.step_ms - cured.step_ms, 0.25 * (sick.step_ms - cured.step_ms));
}

TEST(Evaluation, ThatReadsEveryBatchIsToldSo) {
    const auto body = [](SimulatedProgram& p, int step, bool cured) {
        train_step(p);
        for (int i = 0; step % 10 == 9 && i < 101; ++i) {
            p.at({user_line(17, "evaluate"), user_line(52)});
            p.work(250);
            forward(p, 100, kEvaluate);
            p.at({user_line(19, "evaluate"), user_line(52)});
            if (!cured) p.item();
        }
    };
    const Simulation sick = simulate(body, false, 123), cured = simulate(body, true, 123);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found);
    EXPECT_NE(found->fix.find(".item()"), std::string::npos) << found->fix << found->evidence;
    EXPECT_NEAR(found->lost_ms_per_step, sick.step_ms - cured.step_ms, 0.25 * (sick.step_ms - cured.step_ms));
}

TEST(Evaluation, SeenOnceIsLessSure) {
    const auto body = [](SimulatedProgram& p, int step, bool) {
        train_step(p);
        if (step == 30) judge(p, 134'000, 67, kEvaluate);
    };
    const Diagnosis once = diagnose(simulate(body, false, 61).timeline), often = diagnose(simulate(crumbs, false, 123).timeline);
    const Finding *rare = told_of(once), *usual = told_of(often);
    ASSERT_TRUE(rare && usual);
    EXPECT_LT(rare->confidence, usual->confidence);
    EXPECT_NE(rare->evidence.find("guess"), std::string::npos) << rare->evidence;
}

TEST(Evaluation, BesideStepsThatAreOneGraphIsTold) {
    const auto body = [](SimulatedProgram& p, int step, bool cured) {
        p.timeline.loops.add({user_line(1).file, "evaluate", {{10, 19}}});
        p.at({user_line(30, "train_step"), user_line(50)});
        p.graph(2'000, 20, true);
        p.at({user_line(33, "train_step"), user_line(50)});
        p.launch("loss_sum", 2);
        if (step % 10 == 9) judge(p, 16'750, cured ? 16'750 : 50, kEvaluate);
    };
    const Simulation sick = simulate(body, false, 300);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    EXPECT_NEAR(diagnosis.step_ms, 2.01, 0.02);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found && found->where);
    // The model's line: a graph shows nobody that training runs through it, too.
    EXPECT_EQ(found->where->line, 81);
    EXPECT_TRUE(std::any_of(found->stack.begin(), found->stack.end(), [](const auto& frame) { return frame.line == 18; }));
    const double truth = sick.step_ms - simulate(body, true, 300).step_ms;
    EXPECT_NEAR(found->lost_ms_per_step, truth, 0.25 * truth);
}

/// The crumbs with blocks after the window, each of so many evaluations, in which `counted` steps were counted per training step.
Diagnosis with_blocks(double evaluations, double counted, double pace) {
    Simulation program = simulate(crumbs, false, 123);
    add_blocks(program.timeline, 21, evaluations * 10 * counted, evaluations * 10 * program.step_ms * pace);
    return diagnose(program.timeline);
}

TEST(Evaluation, IsTakenOffThePaceOutsideOfWindows) {
    const Diagnosis diagnosis = with_blocks(5, 1, 0.98);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    ASSERT_FALSE(diagnosis.findings.empty()) << told(diagnosis);
    ASSERT_TRUE(diagnosis.undisturbed_evaluation_ms);
    const double whole = sum_of(diagnosis) + diagnosis.evaluation_ms;
    EXPECT_NEAR(whole_step_ms(diagnosis), 0.98 * whole, 0.01 * whole);
    // The GPU sets the pace of training, the host that of evaluations.
    EXPECT_NEAR(*diagnosis.undisturbed_step_ms, sum_of(diagnosis), 0.01 * sum_of(diagnosis));
    ASSERT_TRUE(diagnosis.window_overhead_share);
    EXPECT_NEAR(*diagnosis.window_overhead_share, 0.02, 0.01);
    ASSERT_TRUE(diagnosis.overhead_share);
    EXPECT_NEAR(*diagnosis.overhead_share, 0.02 * 123 / (123 + 21 * 50), 0.0005);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kSlowEvaluation) << told(diagnosis);
    EXPECT_FALSE(with_blocks(5, 0.1, 0.98).undisturbed_step_ms) << "all from one evaluation to the next was counted as one";
}

TEST(Evaluation, IsWorthTellingByAllThatItLoses) {
    double before = 1e9;
    for (const double pace : {0.98, 0.97, 0.95}) {  // idle time alone is below the least that is told from the second on
        const Diagnosis diagnosis = with_blocks(5, 1, pace);
        const Finding* found = told_of(diagnosis);
        ASSERT_TRUE(found) << pace;
        EXPECT_LT(found->lost_ms_per_step, before) << pace;
        before = found->lost_ms_per_step;
    }
}

TEST(Evaluation, IsToldWithoutWhatRecordingAddedToItsLaunches) {
    const SimulatedProgram::Traits recorded{.recording_us = 12};
    const Simulation sick = simulate(crumbs, false, 123), cured = simulate(crumbs, true, 123);
    Simulation program = simulate(crumbs, false, 123, recorded);
    ASSERT_GT(program.step_ms, 1.1 * sick.step_ms);
    add_blocks(program.timeline, 21, 20, 20 * sick.step_ms);
    const Diagnosis diagnosis = diagnose(program.timeline);
    const double truth = sick.step_ms - cured.step_ms;
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->lost_ms_per_step, truth, 0.1 * truth) << told(diagnosis);
    EXPECT_NEAR(whole_step_ms(diagnosis), sick.step_ms, 0.03 * sick.step_ms);
    ASSERT_TRUE(found->gain_upper_bound);
    EXPECT_NEAR(*found->gain_upper_bound, lost_share(diagnosis, *found), 1e-9) << "one share, wherever it is told";
    program.timeline.blocks.clear();
    EXPECT_GT(told_of(diagnose(program.timeline))->lost_ms_per_step, 1.25 * truth) << "as recorded, nobody knows better";
}

TEST(Evaluation, TakesItsShareOfAPaceThatLaunchesDoNotExplain) {
    // With launches at no cost at all the program would take 6 % less.
    const Diagnosis diagnosis = with_blocks(5, 1, 0.8);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms && diagnosis.undisturbed_evaluation_ms);
    const double whole = sum_of(diagnosis) + diagnosis.evaluation_ms;
    EXPECT_NEAR(whole_step_ms(diagnosis), 0.8 * whole, 0.01 * whole);
    EXPECT_GT(*diagnosis.undisturbed_evaluation_ms, 0.4 * diagnosis.evaluation_ms);
    EXPECT_LT(*diagnosis.undisturbed_evaluation_ms, 0.8 * diagnosis.evaluation_ms);
    EXPECT_TRUE(with_blocks(5, 1, 0.65).undisturbed_step_ms) << "recording may cost that much";
    EXPECT_FALSE(with_blocks(5, 1, 0.55).undisturbed_step_ms) << "but hardly more";
}

/// Kernels that are launched faster than they run, unless a recorder makes that slower.
void close_to_launching(SimulatedProgram& p, int step, bool cured) {
    p.at({user_line(30, "train_step"), user_line(50)});
    for (int i = 0; i < 96; ++i) p.launch(fmt::format("gemm{}", i), 12);
    p.launch("multi_tensor_apply_kernel", 12);
    if (step % 10 == 9) judge(p, 16'750, cured ? 16'750 : 67, kEvaluate);
}

TEST(Evaluation, IsMeasuredAgainstTrainingThatNobodyRecords) {
    const Simulation sick = simulate(close_to_launching, false, 123), cured = simulate(close_to_launching, true, 123);
    Simulation program = simulate(close_to_launching, false, 123, {.recording_us = 9});
    add_blocks(program.timeline, 21, 200, 200 * sick.step_ms);
    const Diagnosis diagnosis = diagnose(program.timeline);
    EXPECT_LT(diagnosis.busy_share, 0.8);
    const Finding* found = told_of(diagnosis);
    ASSERT_TRUE(found);
    const double truth = sick.step_ms - cured.step_ms;
    EXPECT_NEAR(found->lost_ms_per_step, truth, 0.2 * truth) << told(diagnosis);
}

TEST(Evaluation, WhoseCallsWereCountedAsStepsLeavesThePaceUnknown) {
    const Diagnosis diagnosis = with_blocks(5, 6, 0.95);
    EXPECT_FALSE(diagnosis.undisturbed_step_ms) << *diagnosis.undisturbed_step_ms;
    EXPECT_FALSE(diagnosis.window_overhead_share);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kSlowEvaluation) << told(diagnosis);
}

TEST(Evaluation, ThatIsRareIsNoPartOfThePace) {
    const double step = sum_of(diagnose(simulate(crumbs, false, 123).timeline));
    Simulation program = simulate(crumbs, false, 123);
    add_blocks(program.timeline, 61, 5, 5 * step);  // shorter than the time between evaluations
    const Diagnosis diagnosis = diagnose(program.timeline);
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_NEAR(*diagnosis.undisturbed_step_ms, step, 0.01 * step);
}

}  // namespace
}  // namespace millrace::diagnose
