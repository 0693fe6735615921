#include <cmath>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(RepeatedWork, ATableComputedInEachStepIsFound) {
    for (const int layers : {1, 7})  // the second fills the queue: the host is as slow as the device lets it
        expect_case(
            [=](SimulatedProgram& p, int step, bool cured) {
                p.at({user_line(29)});
                p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, {0x100},
                         static_cast<std::uint64_t>(step) + 1);
                for (int layer = 0; layer < layers; ++layer) {
                    // Buffers move: the allocator hands out others in each step.
                    const std::uint64_t base = 0x10000u + static_cast<std::uint64_t>((step * 3 + layer) % 5) * 0x1000;
                    if (!cured) {
                        p.at({user_line(11, "positions"), user_line(30)});
                        p.launch("elementwise_kernel_with_index_arange", 4, kStream, {base}, 5);
                        p.at({user_line(13, "positions"), user_line(30)});
                        p.launch("vectorized_elementwise_kernel_sin", 210, kStream, {base + 0x100, base}, 6);
                        p.launch("vectorized_elementwise_kernel_mul", 150, kStream, {base + 0x200, base + 0x100, base}, 7);
                    }
                    p.at({user_line(30)});
                    p.launch("vectorized_elementwise_kernel_add", 90, kStream, {0x900, 0x800, base + 0x200}, 8);
                    p.launch("gemm_bf16", 700, kStream, {0x800, 0x900, 0xa00}, 9);
                }
                train(p, {3, 300});
            },
            Kind::kRepeatedWork, 13, {}, layers == 1 ? 60 : 150);
}

TEST(RepeatedWork, KernelsOfDataAndParametersAreNot) {
    const Diagnosis diagnosis = diagnose(
        simulate(
            [](SimulatedProgram& p, int step, bool) {
                p.at(20);
                p.launch("distribution_elementwise_grid_stride_kernel", 30, kStream, {0x100}, static_cast<std::uint64_t>(step));
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x200, 0x100}, 4);  // of random numbers
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x300, 0x200}, 4);
                p.launch("FillFunctor_elementwise_kernel", 200, kStream, {0x400}, 3);  // a buffer to add into
                p.launch("gemm_bf16", 400, kStream, {0x500, 0x600, 0x700}, 9);
                p.launch("vectorized_elementwise_kernel", 300, kStream, {0x800, 0x500}, 4);  // gelu of a product
                train(p, {4, 300});
            },
            false)
            .timeline);
    EXPECT_TRUE(diagnosis.findings.empty()) << told(diagnosis);
}

TEST(RepeatedWork, TheSameBytesUploadedAgainAreNoPageableCopyToo) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at(35);
        if (!cured) {
            p.upload(40e6, false, 77);
            p.stream_sync();
        }
        train(p, {8, 300});
    };
    expect_case(body, Kind::kRepeatedWork, 35);
    EXPECT_EQ(diagnose(simulate(body, false).timeline).findings.size(), 1u);
}

TEST(RepeatedWork, WithoutParametersTheDoctorAbstains) {
    const Diagnosis diagnosis = diagnose(simulate([](SimulatedProgram& p, int, bool) { train(p, {4, 300}); }, false).timeline);
    EXPECT_TRUE(std::any_of(diagnosis.remarks.begin(), diagnosis.remarks.end(), [](const std::string& remark) {
        return remark.find("repeated kernels were not looked for") != std::string::npos;
    }));
}

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

Timeline with_machine(const MachineSample& sample, int count = 20) {
    Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {6, 400}); }, false).timeline;
    for (int i = 0; i < count; ++i) {
        timeline.machine.push_back(sample);
        timeline.machine.back().time = i * 1'000'000;
    }
    return timeline;
}

TEST(SmallBatch, AnEmptyChipWithFreeMemoryIsANote) {
    MachineSample sample;
    sample.gpu_utilization = 0.99;
    sample.sm_active = 0.2;
    sample.memory_used_bytes = 10e9;
    sample.memory_total_bytes = 80e9;
    const Diagnosis diagnosis = diagnose(with_machine(sample));
    ASSERT_NE(finding_of(diagnosis, Kind::kSmallBatch), nullptr) << told(diagnosis);
    EXPECT_EQ(finding_of(diagnosis, Kind::kSmallBatch)->severity, Severity::kNote);
    sample.memory_used_bytes = 70e9;
    EXPECT_EQ(finding_of(diagnose(with_machine(sample)), Kind::kSmallBatch), nullptr);
    sample.memory_used_bytes = 10e9;
    sample.sm_active = 0.8;
    EXPECT_TRUE(diagnose(with_machine(sample)).findings.empty());
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

TEST(Straggler, TheRankThatNeverWaitsIsNamed) {
    Timeline timeline = simulate([](SimulatedProgram& p, int, bool) { train(p, {6, 400}); }, false).timeline;
    const Time end = timeline.windows.front().end;
    timeline.names.push_back("ncclDevKernel_AllReduce");
    const auto name = static_cast<std::uint32_t>(timeline.names.size() - 1);
    for (Time at = 0; at + 10'000'000 < end; at += 10'000'000)
        for (std::uint32_t rank = 0; rank < 3; ++rank)
            timeline.work.push_back({at, at + (rank == 1 ? 500'000 : 4'000'000), 7000 + rank, static_cast<std::uint16_t>(rank),
                                     WorkKind::kKernel, true, false, 3, name, 0});
    std::stable_sort(timeline.work.begin(), timeline.work.end(), [](const Work& a, const Work& b) { return a.begin < b.begin; });
    const Diagnosis diagnosis = diagnose(timeline);
    const Finding* finding = finding_of(diagnosis, Kind::kStraggler);
    ASSERT_NE(finding, nullptr) << told(diagnosis);
    EXPECT_NE(finding->what.find("7001"), std::string::npos);
    EXPECT_NEAR(finding->lost_ms_per_step, 3.5 * diagnosis.step_ms / 10, 0.3);
}

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
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(12, "choose_rows")});
        p.work(5'000);
        train(p, {12, 400});
        p.at(31);
        p.item();
    };
    Timeline timeline = simulate(body, false).timeline;
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
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(12, "choose_rows")});
        p.work(5'000);
        train(p, {12, 400});
        p.at(31);
        p.item();
    };
    Timeline timeline = simulate(body, false).timeline;
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
    // Busy share b to about 1: kernels take b^(-1/3) times as long.
    const double busy = free.busy_share * free.step_ms;
    const double expected = free.findings.at(0).lost_ms_per_step - busy * (std::cbrt(0.995 / free.busy_share) - 1);
    EXPECT_NEAR(capped.findings.at(0).lost_ms_per_step, expected, 0.05 * expected) << told(capped);
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

/// Anything at all, as a damaged file may have it.
TEST(Hostile, NoTimelineEndsTheDoctor) {
    std::uint64_t seed = 99;
    const auto draw = [&](std::uint64_t below) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        return (seed >> 33) % below;
    };
    const auto time = [&] {
        return draw(40) == 0 ? static_cast<Time>(draw(~0ull)) * (draw(2) ? 1 : -1) : static_cast<Time>(draw(100'000'000));
    };
    for (int round = 0; round < 200; ++round) {
        Timeline timeline;
        if (round % 3) timeline.names = {"", "a", "multi_tensor_apply", "vectorized_elementwise_kernel"};
        if (round % 5) timeline.stacks = {{}, {user_line(3)}, {torch_line("nn/a.py", "f"), user_line(4)}};
        for (std::uint64_t i = draw(300); i-- > 0;) {
            Call call;
            call.begin = time(), call.end = call.begin + static_cast<Time>(draw(1'000'000));
            if (draw(50) == 0) call.end = time();
            call.process = static_cast<std::uint32_t>(draw(3)), call.thread = static_cast<std::uint32_t>(draw(4));
            call.kind = static_cast<CallKind>(draw(25));
            call.name = static_cast<std::uint32_t>(draw(5)), call.stack = static_cast<std::uint32_t>(draw(4));
            call.correlation = static_cast<std::uint32_t>(draw(200)), call.content = draw(3), call.event = draw(3);
            call.stream = static_cast<std::uint32_t>(draw(3));
            timeline.calls.push_back(call);
            Work work{time(),
                      0,
                      call.process,
                      static_cast<std::uint16_t>(draw(2)),
                      static_cast<WorkKind>(draw(3)),
                      draw(9) == 0,
                      draw(9) == 0,
                      static_cast<std::uint32_t>(draw(3)),
                      static_cast<std::uint32_t>(draw(5)),
                      static_cast<std::uint32_t>(draw(200))};
            work.end = work.begin + static_cast<Time>(draw(2'000'000)) - (draw(50) == 0 ? 5'000'000 : 0);
            timeline.work.push_back(work);
            timeline.samples.push_back({time(), call.process, call.thread, "RSD?"[draw(4)], static_cast<std::uint32_t>(draw(4)),
                                        static_cast<std::uint32_t>(draw(5))});
            if (draw(4) == 0)
                timeline.ranges.push_back({time(), time(), call.process, call.thread, static_cast<std::uint32_t>(draw(5))});
            if (draw(9) == 0) timeline.collections.push_back({time(), time(), call.process, call.thread, 0});
            if (draw(3) == 0)
                timeline.arguments.push_back(
                    {call.process, call.correlation, std::vector<std::uint64_t>(draw(4), draw(9)), draw(2)});
            if (draw(60) == 0) timeline.windows.push_back({time(), time(), static_cast<std::uint32_t>(draw(3))});
            if (draw(60) == 0) timeline.blocks.push_back({time(), time(), static_cast<double>(draw(100))});
        }
        const Diagnosis diagnosis = diagnose(timeline);
        EXPECT_TRUE(std::isfinite(sum_of(diagnosis)));
        EXPECT_TRUE(std::isfinite(diagnosis.busy_share));
        for (const Finding& finding : diagnosis.findings) EXPECT_TRUE(std::isfinite(finding.lost_ms_per_step));
    }
}

}  // namespace
}  // namespace millrace::diagnose
