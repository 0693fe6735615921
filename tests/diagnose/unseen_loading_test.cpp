#include "diagnose/recorded_windows.h"

namespace millrace::diagnose {
namespace {

TEST(UnseenLoading, DataThatWindowsDoNotWaitForAreAFinding) {
    const Timeline timeline = recorded(starved, 240, {{5, 30}, {35, 55}});
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_GE(diagnosis.steps, 35u);
    EXPECT_FALSE(says(diagnosis, "left out"));
    EXPECT_TRUE(says(diagnosis, "outside of the windows a step waits for data 1"));
    EXPECT_TRUE(says(diagnosis, "ms more than inside, at train.py:37: the cost of `loader-wait` has it"));
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    const double step = *diagnosis.undisturbed_step_ms;
    EXPECT_NEAR(sum_of(diagnosis), step, 0.1 * step) << "the breakdown is that of the run";
    ASSERT_FALSE(diagnosis.findings.empty());
    const Finding& first = diagnosis.findings.front();
    EXPECT_EQ(first.kind, Kind::kLoaderWait);
    ASSERT_TRUE(first.where);
    EXPECT_EQ(first.where->line, 37u);
    EXPECT_NEAR(first.lost_ms_per_step, step - 3.2, 2);
    EXPECT_NEAR(lost_share(diagnosis, first), first.lost_ms_per_step / step, 0.1);
    EXPECT_NEAR(first.gain_upper_bound.value_or(0), lost_share(diagnosis, first), 1e-9);
    EXPECT_EQ(first.severity, Severity::kCritical);
    EXPECT_NE(first.what.find("not ready"), std::string::npos);
    EXPECT_GT(first.confidence, 0.9) << "samples outside speak for it";
    EXPECT_FALSE(says(diagnosis, "no step can be shorter")) << "that is said of workers who are just fast enough";
    EXPECT_NE(first.evidence.find("ms more outside of the windows"), std::string::npos) << first.evidence;
    EXPECT_NEAR(diagnosis.busy_share, 3.2 / step, 0.05) << "nor was the GPU as busy as in the windows";
    for (const Finding& finding : diagnosis.findings) EXPECT_LE(lost_share(diagnosis, finding), 1) << name_of(finding.kind);
}

TEST(UnseenLoading, AddsToWhatWindowsShow) {
    const StepBody late_in_turns = [](SimulatedProgram& p, int step, bool) {  // as in the windows, and more outside
        p.next_batch(step < kFetchedAhead ? 6'000 : 20'000, 1, 37, 'R', {user_line(90, "__getitem__")});
        p.at(38);
        train(p, {4, 200});
    };
    const Diagnosis diagnosis = diagnose(recorded(late_in_turns, 240, {{5, 30}, {35, 55}}));
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, *diagnosis.undisturbed_step_ms - 3.2, 2);
    EXPECT_GT(diagnosis.unseen_loading_ms, 8);
}

TEST(UnseenLoading, OnlyWhatGrewIsAdded) {
    const StepBody two_causes = [](SimulatedProgram& p, int step, bool) {
        p.next_batch(step < kFetchedAhead ? 11'000 : 23'000, 1, 37, 'R', {user_line(90, "__getitem__")});
        p.at({user_line(41)});
        p.work(step < kFetchedAhead ? 10 : 5'000);
        p.at(38);
        train(p, {4, 200});
    };
    Timeline timeline = recorded(two_causes, 240, {{5, 30}, {35, 55}});
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    const double more = *diagnosis.undisturbed_step_ms - sum_of(diagnosis) + diagnosis.unseen_loading_ms;
    EXPECT_NEAR(more, 12, 1) << "workers set the pace";
    EXPECT_NEAR(diagnosis.unseen_loading_ms, more - 5, 1.5) << "the training thread's own work hides as much of theirs";
    EXPECT_GT(diagnosis.findings.front().confidence, 0.9);
}

TEST(UnseenLoading, WhoLoadsItselfIsNotSaidToWait) {
    const StepBody cold = [](SimulatedProgram& p, int step, bool) {
        p.at({torch_line("utils/data/dataloader.py", "__next__"), user_line(37)});
        p.work(step < kFetchedAhead ? 100 : 15'000);
        p.at(38);
        train(p, {4, 200});
    };
    const Diagnosis diagnosis = diagnose(recorded(cold, 240, {{5, 30}, {35, 55}}));
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
    EXPECT_NE(diagnosis.findings.front().what.find("loads the next batch itself"), std::string::npos);
    EXPECT_TRUE(says(diagnosis, "a step loads data 1"));
}

TEST(UnseenLoading, OtherWorkIsNone) {
    const StepBody busier = [](SimulatedProgram& p, int step, bool) {
        p.at({user_line(41)});
        if (step >= kFetchedAhead) p.work(15'000);
        p.at(38);
        train(p, {4, 200});
    };
    const Diagnosis diagnosis = diagnose(recorded(busier, 240, {{5, 30}, {35, 55}}));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
    EXPECT_TRUE(std::ranges::none_of(diagnosis.findings, [](const Finding& each) { return each.kind == Kind::kLoaderWait; }));
    EXPECT_LT(sum_of(diagnosis), 8);
}

TEST(UnseenLoading, DataOfEvaluationsAreNotThoseOfTraining) {
    const StepBody evaluated = [](SimulatedProgram& p, int step, bool) {
        p.at(38);
        train(p, {4, 200});
        if (step % 5 != 4) return;
        p.at({torch_line("utils/data/dataloader.py", "__next__"), user_line(60, "evaluate"), user_line(52)});
        p.work(step < kFetchedAhead ? 100 : 20'000);
        p.at({user_line(61, "evaluate"), user_line(52)});
        for (int i = 0; i < 30; ++i) p.launch("judge", 100);
        p.item();
    };
    const Diagnosis diagnosis = diagnose(recorded(evaluated, 400, {{5, 30}, {35, 55}}));
    SCOPED_TRACE(told(diagnosis));
    ASSERT_GT(diagnosis.evaluation_ms, 0);
    EXPECT_FALSE(says(diagnosis, "outside of the windows")) << "how much slower cannot be told with these in between";
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
    EXPECT_TRUE(std::ranges::none_of(diagnosis.findings, [](const Finding& each) { return each.kind == Kind::kLoaderWait; }));
}

const std::vector<std::pair<int, int>> kEarly{{5, 30}, {35, 55}};
const Stack kOwnLoader{torch_line("utils/data/dataloader.py", "__next__"), user_line(37)};
constexpr double kKernel = 400, kSlowerKernel = 485;  ///< us; as of a GPU that got hot

bool blames_loader(const Diagnosis& diagnosis) { return finding_of(diagnosis, Kind::kLoaderWait) != nullptr; }

TEST(UnseenLoading, BlocksWithRareEvaluationsDoNotSpeakForTheOthers) {
    for (const bool evaluates : {false, true}) {
        const StepBody body = [=](SimulatedProgram& p, int step, bool) {
            p.at(kOwnLoader);
            p.work(60);
            train(p, {4, step < kFetchedAhead ? kKernel : kSlowerKernel});
            p.at(44);
            p.item();
            if (!evaluates || step < kFetchedAhead || step % 100 != 99) return;
            p.at({torch_line("utils/data/dataloader.py", "__next__"), user_line(60, "evaluate"), user_line(52)});
            p.work(120'000);
            p.at({user_line(61, "evaluate"), user_line(52)});
            for (int i = 0; i < 30; ++i) p.launch("judge", 100);
            p.item();
        };
        Timeline timeline = recorded(body, 700, kEarly);
        timeline.loops.add({user_line(1).file, "<module>", {{10, 50}}});
        const Diagnosis diagnosis = diagnose(timeline);
        SCOPED_TRACE(told(diagnosis));
        EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
        EXPECT_FALSE(blames_loader(diagnosis));
        EXPECT_TRUE(diagnosis.healthy);
    }
}

TEST(UnseenLoading, LoadingMustGrowNotItsLineAlone) {
    const StepBody trainer = [](SimulatedProgram& p, int step, bool) {  // one line of the user's for all of it
        p.at(kOwnLoader);
        p.work(11'000);
        p.at({torch_line("nn/modules/linear.py", "forward"), user_line(37)});
        for (int i = 0; i < 12; ++i) p.launch("gemm_bf16", step < kFetchedAhead ? 400 : 800);
        p.launch("multi_tensor_apply_kernel", 100);
        p.item();
    };
    const Diagnosis diagnosis = diagnose(recorded(trainer, 300, kEarly));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
    ASSERT_TRUE(blames_loader(diagnosis));
    EXPECT_LT(finding_of(diagnosis, Kind::kLoaderWait)->lost_ms_per_step, 12);
}

TEST(UnseenLoading, WaitsForKernelsInsideOfALoaderAreTheKernels) {
    const StepBody copies = [](SimulatedProgram& p, int step, bool) {
        p.at({torch_line("utils/data/dataloader.py", "__next__"), user_line(37)});
        p.upload(4e6, false);  // to the GPU, behind all that is queued
        p.at(38);
        train(p, {4, 10 * (step < kFetchedAhead ? kKernel : kSlowerKernel)});
    };
    const Diagnosis diagnosis = diagnose(recorded(copies, 300, kEarly));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
    EXPECT_FALSE(blames_loader(diagnosis));
    EXPECT_GT(diagnosis.busy_share, 0.9);
}

TEST(UnseenLoading, WhoSleepsInALoaderWhileKernelsRunMayWaitForThem) {
    const StepBody beside = [](SimulatedProgram& p, int step, bool) {
        const double kernel = step < kFetchedAhead ? 1000 : 1200, busy = 13.55 * kernel;
        p.at(kOwnLoader);
        p.work(busy - 650, 'S', "futex");  // handed over by a thread that goes with the GPU
        train(p, {4, kernel});
    };
    const Diagnosis diagnosis = diagnose(recorded(beside, 400, kEarly));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
    EXPECT_TRUE(diagnosis.healthy);
}

TEST(UnseenLoading, AHostThatIsAheadLeavesAWindowBeforeItsDevice) {
    const StepBody ahead = [](SimulatedProgram& p, int step, bool) {  // the queue is long when loading gets slow
        p.at(kOwnLoader);
        p.work(step < kFetchedAhead ? 100 : 3'200);
        train(p, {4, 200});
    };
    const Diagnosis diagnosis = diagnose(recorded(ahead, 400, kEarly));
    SCOPED_TRACE(told(diagnosis));
    ASSERT_TRUE(diagnosis.undisturbed_step_ms);
    EXPECT_NEAR(diagnosis.unseen_loading_ms, *diagnosis.undisturbed_step_ms - diagnosis.step_ms, 0.1);
    EXPECT_TRUE(blames_loader(diagnosis));
}

/// Workers rest in the windows, since all their batches lie ready.
void late_from_a_full_queue(SimulatedProgram& p, int step, bool) {
    p.next_batch(step < kFetchedAhead ? 500 : 20'000, 3, 37, 'R',
                 {user_line(90, "__getitem__"), torch_line("utils/data/_utils/worker.py", "_worker_loop")});
    p.at(38);
    train(p, {4, 1000});
    p.at(44);
    p.item();
}

TEST(UnseenLoading, WorkersAreJudgedByThatTime) {
    const Diagnosis diagnosis = diagnose(recorded(late_from_a_full_queue, 240, {{5, 30}, {31, 55}}));
    SCOPED_TRACE(told(diagnosis));
    ASSERT_TRUE(blames_loader(diagnosis));
    const Finding& first = diagnosis.findings.front();
    EXPECT_EQ(first.kind, Kind::kLoaderWait);
    EXPECT_NE(first.evidence.find("too few workers"), std::string::npos) << first.evidence;
    EXPECT_EQ(first.evidence.find("they wait, too"), std::string::npos) << first.evidence;
}

TEST(UnseenLoading, IsWeighedHoweverManyOtherSuspectsThereAre) {
    const StepBody many = [](SimulatedProgram& p, int step, bool) {
        late_from_a_full_queue(p, step, false);
        for (int i = 0; i < 40; ++i) {
            p.at(200 + i);
            p.upload(70'000, false);
        }
    };
    const Diagnosis diagnosis = diagnose(recorded(many, 240, {{5, 30}, {31, 55}}));
    SCOPED_TRACE(told(diagnosis));
    EXPECT_GT(diagnosis.unseen_loading_ms, 2);
    EXPECT_TRUE(blames_loader(diagnosis));
    EXPECT_TRUE(says(diagnosis, "the cost of `loader-wait` has it"));
}

TEST(UnseenLoading, WorkersAreNotJudgedByWindowsThatBlocksOfAnotherProcessCover) {
    Timeline timeline = recorded(late_from_a_full_queue, 140, {{5, 30}, {31, 55}});
    const Time begin = timeline.windows.front().begin, end = timeline.windows.back().end, each = 200'000'000;
    for (Time at = begin; at + each < end; at += each) timeline.blocks.push_back({at, at + each, 10});
    std::ranges::stable_sort(timeline.blocks, {}, &Block::begin);
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_TRUE(blames_loader(diagnosis));
    EXPECT_NE(finding_of(diagnosis, Kind::kLoaderWait)->evidence.find("too few workers"), std::string::npos);
}

TEST(UnseenLoading, BlocksOfAnotherProcessMayCoverWindows) {
    Timeline timeline = recorded(late_from_a_full_queue, 240, {{5, 30}, {31, 55}});
    timeline.blocks.insert(timeline.blocks.begin(), {timeline.windows.front().begin, timeline.windows.back().end + 1000, 20});
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_TRUE(blames_loader(diagnosis));
}

TEST(UnseenLoading, WithoutSamplesInWindowsNothingIsKnownToGrow) {
    const StepBody loads = [](SimulatedProgram& p, int step, bool) {
        p.at(kOwnLoader);
        p.work(4'000);
        train(p, {4, step < kFetchedAhead ? kKernel : 2 * kKernel});
        p.at(44);
        p.item();
    };
    Timeline timeline = recorded(loads, 400, kEarly);
    std::erase_if(timeline.samples, [&](const Sample& sample) { return sample.time < timeline.windows.back().end; });
    const Diagnosis diagnosis = diagnose(timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_EQ(diagnosis.unseen_loading_ms, 0);
}

}  // namespace
}  // namespace millrace::diagnose
