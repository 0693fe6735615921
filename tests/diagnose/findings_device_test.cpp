#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(NoTensorCores, PlainProductsAreFoundByNameAndByCounter) {
    const auto body = [](const std::string& kernel) {
        return [=](SimulatedProgram& p, int, bool) {
            p.at(20);
            for (int i = 0; i < 11; ++i) {
                p.launch(kernel, 800);
                p.launch("gelu_elementwise_kernel", 60);
            }
            p.launch("multi_tensor_apply_kernel", 100);
        };
    };
    const Diagnosis named = diagnose(simulate(body("ampere_sgemm_128x64_tn"), false).timeline);
    ASSERT_NE(finding_of(named, Kind::kNoTensorCores), nullptr) << told(named);
    EXPECT_NEAR(named.findings.front().lost_ms_per_step, 11 * 0.8 * 5 / 6, 0.3);
    EXPECT_EQ(named.findings.front().where->line, 20);
    EXPECT_TRUE(diagnose(simulate(body("sm90_xmma_gemm_bf16bf16_bf16f32_f32"), false).timeline).healthy);

    Timeline counted = simulate(body("some_gemm"), false).timeline;
    MachineSample sample;
    sample.time = 5;
    sample.gpu_utilization = 1.0;
    sample.tensor_active = 0.001;
    counted.machine.push_back(sample);
    EXPECT_NE(finding_of(diagnose(counted), Kind::kNoTensorCores), nullptr);
    counted.machine.front().tensor_active = 0.4;
    EXPECT_EQ(finding_of(diagnose(counted), Kind::kNoTensorCores), nullptr);
}

/// Products in plain FP32 forward (lines 20 and, fewer, 24) and backward (line 21), there launched by `on_main` or the
/// framework's own thread, whose calls have a stack without lines.
Timeline plain_products(const std::string& forward, bool on_main) {
    const StepBody body = [=](SimulatedProgram& p, int, bool) {
        p.at(20);
        for (int i = 0; i < 5; ++i) p.launch(forward, 800);
        p.at(24);
        for (int i = 0; i < 2; ++i) p.launch(forward, 800);
        p.begin_backward(21);
        if (on_main) p.end_backward();
        for (int i = 0; i < 13; ++i) p.launch("ampere_sgemm_128x64_nt", 800);
        if (!on_main) p.end_backward();
        p.at({torch_line("optim/adamw.py", "step"), user_line(22)});
        p.launch("multi_tensor_apply_kernel", 100);
    };
    Timeline timeline = simulate(body, false).timeline;
    timeline.stacks.push_back({{"[thread]", 0, "pt_autograd_0", true}});
    for (Call& call : timeline.calls)
        if (call.thread == kBackwardThread) call.stack = static_cast<std::uint32_t>(timeline.stacks.size() - 1);
    return timeline;
}

TEST(NoTensorCores, TheLineIsThatOfTheForwardPassWhichBackwardMirrors) {
    for (const bool on_main : {false, true}) {
        const Diagnosis both = diagnose(plain_products("ampere_sgemm_128x64_tn", on_main));
        const Finding* finding = finding_of(both, Kind::kNoTensorCores);
        ASSERT_TRUE(finding && finding->where) << told(both);
        EXPECT_EQ(finding->where->line, 20);
        EXPECT_NEAR(finding->lost_ms_per_step, 20 * 0.8 * 5 / 6, 0.5);

        const Diagnosis backward = diagnose(plain_products("sm90_xmma_gemm_bf16bf16_bf16f32_f32", on_main));
        finding = finding_of(backward, Kind::kNoTensorCores);
        ASSERT_TRUE(finding && finding->where) << told(backward);
        EXPECT_EQ(finding->where->line, 21);
    }
}

TEST(NoTensorCores, UserCodeThatRunsInsideOfBackwardIsTheUsers) {
    // A function's own backward, or a forward pass that is computed again.
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at(20);
        p.launch("ampere_sgemm_128x64_tn", 800);
        p.at({user_line(60, "backward"), torch_line("autograd/function.py", "apply"),
              torch_line("autograd/graph.py", "_engine_run_backward"), user_line(21)});
        for (int i = 0; i < 7; ++i) p.launch("ampere_sgemm_128x64_nt", 800);
        p.at({torch_line("optim/adamw.py", "step"), user_line(22)});
        p.launch("multi_tensor_apply_kernel", 100);
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    const Finding* finding = finding_of(diagnosis, Kind::kNoTensorCores);
    ASSERT_TRUE(finding && finding->where) << told(diagnosis);
    EXPECT_EQ(finding->where->line, 60);
}

TEST(NoTensorCores, AGpuThatMostlyIdlesIsNotAccusedByItsMeanCounter) {
    for (const std::string name : {"sm90_xmma_gemm_bf16bf16_bf16f32_f32", "some_gemm"}) {
        Timeline timeline = simulate(
                                [&](SimulatedProgram& p, int, bool) {
                                    p.at(20);
                                    for (int i = 0; i < 8; ++i) p.launch(name, 100);
                                    p.stream_sync();
                                    p.at({user_line(30)});
                                    p.work(1'500);
                                },
                                false)
                                .timeline;
        MachineSample sample;
        sample.time = 5;
        sample.gpu_utilization = 0.6;
        // Tensor cores at work in a fiftieth of the products' time, which are a third of all.
        sample.tensor_active = name == "some_gemm" ? 0.007 : 0.001;
        timeline.machine.push_back(sample);
        const Diagnosis diagnosis = diagnose(timeline);
        EXPECT_EQ(finding_of(diagnosis, Kind::kNoTensorCores), nullptr) << told(diagnosis);
        if (name != "some_gemm") continue;
        timeline.machine.front().tensor_active = 0.0005;
        EXPECT_NE(finding_of(diagnose(timeline), Kind::kNoTensorCores), nullptr);
    }
}

Timeline with_machine(const MachineSample& sample, int count = 20) {
    Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {6, 400}); }, false).timeline;
    for (int i = 0; i < count; ++i) {
        timeline.machine.push_back(sample);
        timeline.machine.back().time = i * 1'000'000;
    }
    return timeline;
}

MachineSample empty_chip() {
    MachineSample sample;
    sample.gpu_utilization = 0.99;
    sample.sm_active = 0.2;
    sample.memory_used_bytes = 10e9;
    sample.memory_total_bytes = 80e9;
    return sample;
}

TEST(SmallBatch, AnEmptyChipWithFreeMemoryIsANote) {
    MachineSample sample = empty_chip();
    const Diagnosis diagnosis = diagnose(with_machine(sample));
    ASSERT_NE(finding_of(diagnosis, Kind::kSmallBatch), nullptr) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kSmallBatch)->severity, Severity::kNote);
    sample.memory_used_bytes = 70e9;
    EXPECT_EQ(finding_of(diagnose(with_machine(sample)), Kind::kSmallBatch), nullptr);
    sample.memory_used_bytes = 10e9;
    sample.sm_active = 0.8;
    EXPECT_TRUE(diagnose(with_machine(sample)).findings.empty());
}

TEST(Pauses, BetweenNodesOfQueuedGraphsAreTheDevicesOwnAndNoLaunching) {
    for (const double node_us : {2.0, 1.5}) {
        // 262 nodes, half a microsecond apart; the host is far ahead.
        const Diagnosis diagnosis = diagnose(simulate(
                                                 [=](SimulatedProgram& p, int, bool) {
                                                     p.at(12);
                                                     p.graph(262 * node_us, 262);
                                                 },
                                                 false, 300)
                                                 .timeline);
        SCOPED_TRACE(told(diagnosis));
        const double pauses = diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kOther)] / sum_of(diagnosis);
        EXPECT_NEAR(pauses, 0.5 / (node_us + 0.5), 0.01);
        EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kLaunchBound)], 1e-3 * sum_of(diagnosis));
        EXPECT_TRUE(diagnosis.healthy);
        EXPECT_TRUE(diagnosis.findings.empty());
        EXPECT_TRUE(std::any_of(diagnosis.remarks.begin(), diagnosis.remarks.end(), [](const std::string& remark) {
            return remark.find("between kernels that were queued in time") != std::string::npos;
        }));
    }
}

TEST(Pauses, ThatRecordingMadeAreNotTold) {
    Timeline timeline = simulate(
                            [](SimulatedProgram& p, int, bool) {
                                p.at(12);
                                p.graph(262 * 2.0, 262);
                            },
                            false, 300)
                            .timeline;
    const double step = sum_of(diagnose(timeline));
    const auto says = [&](double pace) {
        timeline.blocks.clear();
        add_blocks(timeline, 21, 500, 500 * step * pace);
        const Diagnosis diagnosis = diagnose(timeline);
        EXPECT_TRUE(diagnosis.healthy) << told(diagnosis);
        return std::ranges::any_of(diagnosis.remarks, [](const std::string& remark) {
            return remark.find("between kernels that were queued in time") != std::string::npos;
        });
    };
    EXPECT_TRUE(says(1));  // a fifth of the step
    EXPECT_TRUE(says(0.97));
    EXPECT_FALSE(says(0.9)) << "a tenth of what is left, at most";
    EXPECT_TRUE(says(1.2));
}

TEST(Pauses, ThatComeNowAndThenAreNotTakenForRecordings) {
    const StepBody hiccups = [](SimulatedProgram& p, int step, bool) {
        p.at(20);
        for (int i = 0; i < 10; ++i) p.launch("a", 200);
        p.launch("multi_tensor_apply_kernel", 100);
        p.item();
        if (step % 30 == 17) p.work(28'000);
    };
    Timeline timeline = simulate(hiccups, false, 300).timeline;
    timeline.samples.clear();
    timeline.calls.clear();  // so that no finding explains it
    const auto idles = [](const Diagnosis& diagnosis) {
        return !diagnosis.healthy && std::ranges::any_of(diagnosis.remarks, [](const std::string& remark) {
            return remark.find("and no cause was found") != std::string::npos;
        });
    };
    ASSERT_TRUE(idles(diagnose(timeline)));
    const double usual = diagnose(timeline).step_ms;
    add_blocks(timeline, 61, 10, 10 * usual);  // most blocks have none
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_TRUE(idles(diagnosis)) << told(diagnosis);
    EXPECT_LT(undisturbed_busy_share(diagnosis).value_or(1), 0.75);

    // Twice as fast outside: what is counted there are other steps.
    timeline.blocks.clear();
    add_blocks(timeline, 61, 20, 10 * usual);
    EXPECT_TRUE(idles(diagnose(timeline)));
}

TEST(Pauses, AndOtherIdleTimeShareWhatRecordingAdded) {
    Timeline timeline = simulate(
                            [](SimulatedProgram& p, int, bool) {
                                p.at(12);
                                p.graph(524 * 2.0, 524);
                                p.work(1'650);
                            },
                            false, 300)
                            .timeline;
    timeline.samples.clear();
    const double step = sum_of(diagnose(timeline));
    add_blocks(timeline, 21, 900, 900 * step * 0.88);
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_FALSE(diagnosis.healthy) << "pauses and idle time are a third of the step, recording a tenth\n" << told(diagnosis);
}

TEST(Pauses, OfLaunchesThatCameLateAreNotTheDevicesOwn) {
    const Diagnosis diagnosis = diagnose(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 p.at(12);
                                                 for (int i = 0; i < 101; ++i) p.launch(i == 0 ? "first" : "small", 3);
                                             },
                                             false)
                                             .timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kOther)], 0.1 * sum_of(diagnosis));
    EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kLaunchBound)], 0.5 * sum_of(diagnosis));
}

TEST(Pauses, WhileALaunchIsUnderWayAreNotTheDevicesOwn) {
    // The launch begins while the kernel before it runs, and hands its own over when that has long ended.
    SimulatedProgram::Traits slow;
    slow.launch_us = 80;
    slow.submit_us = 75;
    const Diagnosis diagnosis = diagnose(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 p.at(12);
                                                 for (int i = 0; i < 67; ++i) p.launch(i == 0 ? "first" : "small", 20);
                                             },
                                             false, 60, slow)
                                             .timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_LT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kOther)], 0.05 * sum_of(diagnosis));
    ASSERT_NE(finding_of(diagnosis, Kind::kLaunchBound), nullptr);
    EXPECT_NEAR(finding_of(diagnosis, Kind::kLaunchBound)->lost_ms_per_step, diagnosis.step_ms - 67 * 21e-3, 0.1);
}

TEST(MemoryEdge, IsNotedBeforeItBreaks) {
    MachineSample sample;
    sample.memory_used_bytes = 79e9;
    sample.memory_total_bytes = 80e9;
    const Diagnosis diagnosis = diagnose(with_machine(sample));
    ASSERT_NE(finding_of(diagnosis, Kind::kMemoryEdge), nullptr);
    EXPECT_EQ(finding_of(diagnosis, Kind::kMemoryEdge)->severity, Severity::kWarning);
    EXPECT_FALSE(finding_of(diagnosis, Kind::kMemoryEdge)->gain_upper_bound);
    sample.memory_used_bytes = 60e9;
    EXPECT_TRUE(diagnose(with_machine(sample)).healthy);
}

TEST(Throttled, HeatIsAFindingAndAPowerLimitARemark) {
    MachineSample sample;
    sample.throttled = true;
    sample.throttle_reason = "power cap";
    const Diagnosis capped = diagnose(with_machine(sample));
    EXPECT_TRUE(capped.healthy) << told(capped);
    sample.throttle_reason = "thermal";
    Timeline hot = with_machine(sample, 10);
    for (int i = 10; i < 20; ++i) {
        hot.machine.push_back({});
        hot.machine.back().time = 3'000'000'000 + i;
        hot.machine.back().throttled = false;
    }
    hot.blocks = {{0, 1'000'000'000, 100}, {3'000'000'000, 4'000'000'000, 125}};
    const Diagnosis diagnosis = diagnose(hot);
    ASSERT_NE(finding_of(diagnosis, Kind::kThrottled), nullptr);
    EXPECT_NEAR(finding_of(diagnosis, Kind::kThrottled)->lost_ms_per_step, (10 - 8) * 0.5, 1e-9);
    sample.throttled = false;
    EXPECT_TRUE(diagnose(with_machine(sample)).healthy);
}

TEST(SmallBatch, WhatOthersDidOnTheGpuBeforeIsNotItsOwn) {
    MachineSample sample = empty_chip();
    sample.throttled = false;
    Timeline timeline = with_machine(sample);
    for (int i = 0; i < 40; ++i) {
        MachineSample other = sample;
        other.time = -1'000'000 * (40 - i);
        other.sm_active = 0.95;
        other.memory_used_bytes = 79e9;
        other.throttled = true;
        other.throttle_reason = "power cap";
        timeline.machine.insert(timeline.machine.begin() + i, other);
    }
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_NE(finding_of(diagnosis, Kind::kSmallBatch), nullptr) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kMemoryEdge), nullptr) << told(diagnosis);
    for (const std::string& remark : diagnosis.remarks) EXPECT_EQ(remark.find("power limit"), std::string::npos) << remark;
}

TEST(Straggler, TheRankThatNeverWaitsIsNamed) {
    Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {6, 400}); }, false).timeline;
    const Time end = timeline.windows.front().end;
    timeline.names.push_back("ncclDevKernel_AllReduce");
    const auto name = static_cast<std::uint32_t>(timeline.names.size() - 1);
    for (Time at = 0; at + 10'000'000 < end; at += 10'000'000)
        for (std::uint32_t rank = 0; rank < 3; ++rank)
            timeline.work.push_back({at, at + (rank == 1 ? 500'000 : 4'000'000), 7000 + rank, static_cast<std::uint16_t>(rank),
                                     WorkKind::kKernel, true, 3, name, 0});
    std::stable_sort(timeline.work.begin(), timeline.work.end(), [](const Work& a, const Work& b) { return a.begin < b.begin; });
    const Diagnosis diagnosis = diagnose(timeline);
    const Finding* finding = finding_of(diagnosis, Kind::kStraggler);
    ASSERT_NE(finding, nullptr) << told(diagnosis);
    EXPECT_NE(finding->what.find("7001"), std::string::npos);
    EXPECT_NEAR(finding->lost_ms_per_step, 3.5 * diagnosis.step_ms / 10, 0.3);
}

/// Three ranks that spend four of ten milliseconds in collectives, recorded in the program's one window and in `windows` of their
/// own.
Timeline ranks_recorded_in(const std::vector<Window>& windows) {
    Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {6, 400}); }, false).timeline;
    const Time end = timeline.windows.front().end;
    timeline.names.push_back("ncclDevKernel_AllReduce");
    const auto name = static_cast<std::uint32_t>(timeline.names.size() - 1);
    for (Time at = 0; at + 10'000'000 < end; at += 10'000'000)
        for (const std::uint32_t process : {kProcess, 7001u, 7002u})
            if (process == kProcess || std::ranges::any_of(windows, [&](const Window& window) {
                    return window.process == process && window.begin <= at && at < window.end;
                }))
                timeline.work.push_back({at, at + 4'000'000, process, 0, WorkKind::kKernel, true, 3, name, 0});
    std::stable_sort(timeline.work.begin(), timeline.work.end(), [](const Work& a, const Work& b) { return a.begin < b.begin; });
    timeline.windows.insert(timeline.windows.end(), windows.begin(), windows.end());
    std::ranges::stable_sort(timeline.windows, {}, &Window::begin);
    return timeline;
}

TEST(Straggler, RanksAreComparedWhereAllOfThemWereRecorded) {
    const Time third = 200'000'000;
    // The second rank's window is open for a third of the time: it would pass for one that hardly waits.
    const Diagnosis some = diagnose(ranks_recorded_in({{0, third, 7001}, {0, 3 * third, 7002}}));
    EXPECT_EQ(finding_of(some, Kind::kStraggler), nullptr) << told(some);
    const Diagnosis apart = diagnose(ranks_recorded_in({{0, third, 7001}, {third, 3 * third, 7002}}));
    EXPECT_EQ(finding_of(apart, Kind::kStraggler), nullptr) << told(apart);
    EXPECT_TRUE(
        std::ranges::any_of(apart.remarks, [](const std::string& remark) { return remark.starts_with("ranks were recorded"); }));
}

}  // namespace
}  // namespace millrace::diagnose
