#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(LoaderWait, IsSplitByWhyBatchesAreLate) {
    const auto evidence = [](char state, const Stack& stack) {
        const Diagnosis diagnosis = diagnose(simulate(
                                                 [&](SimulatedProgram& p, int, bool) {
                                                     p.next_batch(40'000, 2, 37, state, stack);
                                                     p.at(38);
                                                     train(p, {4, 200});
                                                 },
                                                 false)
                                                 .timeline);
        return diagnosis.findings.empty() ? "nothing" : diagnosis.findings.front().evidence;
    };
    EXPECT_NE(evidence('R', {user_line(90, "__getitem__")}).find("too few workers"), std::string::npos);
    EXPECT_NE(evidence('R', {user_line(90, "__getitem__")}).find("train.py:90"), std::string::npos);
    EXPECT_NE(evidence('D', {user_line(91, "__getitem__")}).find("slow reads"), std::string::npos);
    EXPECT_NE(evidence('R', {torch_line("utils/data/_utils/collate.py", "default_collate")}).find("packing"), std::string::npos);
}

TEST(LoaderWait, WorkersOfAnotherLoaderAreNoneOfThePool) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.next_batch(40'000, 2, 37, 'R',
                     {user_line(90, "__getitem__"), torch_line("utils/data/_utils/worker.py", "_worker_loop")});
        p.at(38);
        train(p, {4, 200});
    };
    Timeline timeline = simulate(body, false).timeline;
    // Persistent workers of a loader for evaluations, which have nothing to do meanwhile.
    const auto stack = static_cast<std::uint32_t>(timeline.stacks.size());
    timeline.stacks.push_back({{"/usr/lib/python3.11/multiprocessing/queues.py", 100, "get", false},
                               torch_line("utils/data/_utils/worker.py", "_worker_loop")});
    for (const std::uint32_t other : {kWorker + 1, kWorker + 2, kWorker + 3}) {
        timeline.processes.push_back({other, kProcess, "python worker", false, other});
        for (Time time = 0; time < timeline.windows.back().end; time += 50'000'000)
            timeline.samples.push_back({time, other, other, 'S', stack, kNoName});
    }
    std::ranges::stable_sort(timeline.samples, {}, &Sample::time);
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    const Finding& finding = diagnosis.findings.front();
    EXPECT_EQ(finding.kind, Kind::kLoaderWait);
    EXPECT_NE(finding.evidence.find("1 worker of"), std::string::npos) << finding.evidence;
    EXPECT_NE(finding.evidence.find("too few workers"), std::string::npos) << finding.evidence;
    EXPECT_EQ(finding.fix.find("prefetch_factor"), std::string::npos) << finding.fix;
    EXPECT_NE(finding.fix.find("num_workers"), std::string::npos) << finding.fix;
}

TEST(LoaderWait, WhatWorkersDoWhileTheBatchIsLateCounts) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.next_batch(40'000, 1, 37, 'R', {user_line(90, "__getitem__")});
        p.at(38);
        p.work(22'000);
        train(p, {4, 200});
    };
    Timeline timeline = simulate(body, false, 200).timeline;
    // The worker rests while the loop has a batch: less than half of its samples are at work.
    const auto rests = static_cast<std::uint32_t>(timeline.stacks.size());
    timeline.stacks.push_back({{"/usr/lib/python3.11/multiprocessing/queues.py", 100, "get", false}});
    std::ranges::stable_sort(timeline.samples, {}, &Sample::time);
    bool late = false;
    std::size_t works = 0, all = 0;
    for (Sample& sample : timeline.samples) {
        if (sample.thread == kMainThread) late = sample.state == 'S';
        if (sample.process != kWorker) continue;
        if (!late) sample.state = 'S', sample.stack = rests;
        works += late ? 1 : 0;
        ++all;
    }
    ASSERT_LT(2 * works, all);
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    const auto finding = std::ranges::find(diagnosis.findings, Kind::kLoaderWait, &Finding::kind);
    ASSERT_NE(finding, diagnosis.findings.end()) << told(diagnosis);
    EXPECT_NE(finding->evidence.find("too few workers"), std::string::npos) << finding->evidence;
    EXPECT_NE(finding->fix.find("num_workers"), std::string::npos) << finding->fix;
}

TEST(LoaderWait, FewSamplesOfWorkersInWindowsAreHelpedByThoseBetweenThem) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.next_batch(40'000, 2, 37, 'R', {user_line(90, "__getitem__")});
        p.at(38);
        train(p, {4, 200});
    };
    Timeline timeline = simulate(body, false).timeline;
    // In the window the worker is seen twice, asleep. Later it is seen at work, in a block and outside of any.
    std::erase_if(timeline.samples, [](const Sample& sample) { return sample.process == kWorker; });
    const Time end = timeline.windows.back().end;
    const auto stack = static_cast<std::uint32_t>(timeline.stacks.size());
    timeline.stacks.push_back({user_line(90, "__getitem__"), torch_line("utils/data/_utils/worker.py", "_worker_loop")});
    timeline.names.push_back("futex");
    const auto futex = static_cast<std::uint32_t>(timeline.names.size() - 1);
    const auto add = [&](Time time, char state) {
        timeline.samples.push_back({time, kWorker, kWorker, state, stack, state == 'S' ? futex : kNoName});
    };
    add(end / 3, 'S');
    add(end / 2, 'S');
    timeline.blocks.push_back({end, end + 2'000'000'000, 50});
    for (Time i = 0; i < 40; ++i) add(end + i * 50'000'000, 'R');
    for (Time i = 0; i < 40; ++i) add(end + 2'000'000'000 + i * 50'000'000, 'S');
    std::ranges::stable_sort(timeline.samples, {}, &Sample::time);
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_NE(diagnosis.findings.front().evidence.find("busy 95 % of the time"), std::string::npos)
        << diagnosis.findings.front().evidence;
}

TEST(LoaderWait, WorkersGoOnWhereTheHostNoLongerStops) {
    // While the host computes, workers fill their queue and rest; it waits for them later, though they could keep up.
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        p.next_batch(12'000, 2, 37);
        p.at({user_line(43)});
        if (!cured && step % 4 == 0) p.work(120'000);
        train(p, {4, 50});
    };
    const Simulation sick = simulate(body, false, 120), cured = simulate(body, true, 120);
    const double truth = sick.step_ms - cured.step_ms;
    const Diagnosis diagnosis = diagnose(sick.timeline);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kPythonWork) << told(diagnosis);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, truth, 0.1 * truth) << told(diagnosis);
}

TEST(LoaderWait, WhatRecordingAddsIsNotTakenOffALoadersTime) {
    // Outside of windows a step takes less, as the loader does there: launching takes what it took.
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.next_batch(30'000, 2, 37);
        p.at(38);
        train(p, {40, 10});
    };
    Timeline timeline = simulate(body, false).timeline;
    const Time end = timeline.windows.back().end;
    timeline.blocks.push_back({end, end + 2'800'000'000, 100});
    const Diagnosis diagnosis = diagnose(timeline);
    const auto launching = std::ranges::find(diagnosis.findings, Kind::kLaunchBound, &Finding::kind);
    ASSERT_NE(launching, diagnosis.findings.end()) << told(diagnosis);
    EXPECT_GT(launching->lost_ms_per_step, 0.5) << told(diagnosis);
}

TEST(LoaderWait, APipeFromAnotherProcessIsWaitedFor) {
    const auto what = [](const Stack& stack) {
        const StepBody body = [&](SimulatedProgram& p, int, bool) {
            p.at(stack);
            p.work(23'000, 'S', "read");
            p.at(38);
            train(p, {6, 300});
        };
        const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
        EXPECT_FALSE(diagnosis.findings.empty());
        if (diagnosis.findings.empty()) return std::string();
        EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
        return diagnosis.findings.front().what;
    };
    const Frame receive{"/usr/lib/python3.12/multiprocessing/connection.py", 395, "_recv", false};
    const Frame get{"/usr/lib/python3.12/multiprocessing/queues.py", 103, "get", false};
    EXPECT_EQ(what({receive, get, user_line(37)}), "The GPU idles because the next batch is not ready.");
    EXPECT_NE(what({user_line(90, "read_file"), user_line(37)}).find("loads the next batch itself"), std::string::npos);
}

TEST(LoaderWait, ALoaderWithoutWorkersIsOneToo) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(90, "__getitem__"), torch_line("utils/data/_utils/fetch.py", "fetch"),
                  torch_line("utils/data/dataloader.py", "__next__"), user_line(37)});
            if (!cured) p.work(23'000);
            p.at(38);
            p.upload(1e6, true);
            train(p, {6, 300});
        },
        Kind::kLoaderWait, 90);
}

}  // namespace
}  // namespace millrace::diagnose
