#include <fmt/core.h>
#include <gtest/gtest.h>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

TEST(Diagnose, AHealthyProgramGetsACleanBill) {
    for (const double kernel : {97.0, 400.0, 1201.0})
        expect_healthy([=](SimulatedProgram& p, int, bool) { train(p, {12, kernel}); });
    // Long enough to fill the queue: launches block, which is how a full GPU looks.
    expect_healthy([](SimulatedProgram& p, int, bool) { train(p, {12, 400}); }, {}, 211);
}

TEST(Diagnose, AReadInEachStepCostsTheHostWorkThatFollowsIt) {
    for (const double host : {2'000.0, 4'500.0, 11'003.0})
        expect_case(
            [=](SimulatedProgram& p, int, bool cured) {
                p.at({user_line(12, "choose_rows"), user_line(30)});
                p.work(host);
                p.upload(70'001, true);
                train(p, {12, 400});
                p.at(31);
                if (!cured) p.item();
            },
            Kind::kHostSync, 31);
}

TEST(Diagnose, AReadCostsLittleWhereTheHostHasNothingElseToDo) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        train(p, {12, 900});
        p.at(31);
        if (!cured) p.item();
    };
    const Simulation sick = simulate(body, false), cured = simulate(body, true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_LT(sick.step_ms - cured.step_ms, 0.02 * sick.step_ms);
    EXPECT_TRUE(diagnosis.findings.empty());
    EXPECT_TRUE(diagnosis.healthy);
}

TEST(Diagnose, ManyReadsAtOneLineAreOneFinding) {
    for (const int reads : {13, 67})
        expect_case(
            [=](SimulatedProgram& p, int, bool cured) {
                train(p, {12, 300});
                for (int i = 0; i < reads; ++i) {
                    p.at(41);
                    p.launch("norm_reduce", 6);
                    p.work(25);
                    if (!cured) p.item();
                }
            },
            Kind::kHostSync, 41);
}

TEST(Diagnose, TwoReadsThatHideEachOtherAreToldTogether) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at({user_line(12, "choose_rows"), user_line(30)});
        p.work(5'000);
        train(p, {12, 400});
        p.at(31);
        if (!cured) p.item();
        p.at(32);
        p.launch("accuracy", 8);
        if (!cured) p.item();
    };
    expect_case(body, Kind::kHostSync, 31);
    const Diagnosis diagnosis = diagnose(simulate(body, false).timeline);
    EXPECT_EQ(diagnosis.findings.size(), 1u) << told(diagnosis);
    EXPECT_NE(diagnosis.findings.front().evidence.find("train.py:32"), std::string::npos) << told(diagnosis);
}

TEST(Diagnose, AFlushedCacheIsChargedToTheFlush) {
    for (const int blocks : {5, 23})
        expect_case(
            [=](SimulatedProgram& p, int, bool cured) {
                p.at(20);
                for (int i = 0; i < blocks && !cured; ++i) {
                    p.launch("gemm_bf16", 20);
                    p.allocate();
                }
                train(p, {12, 400});
                p.at({torch_line("cuda/memory.py", "empty_cache"), user_line(33)});
                if (!cured) {
                    p.device_sync();
                    for (int i = 0; i < blocks; ++i) p.free_memory();
                }
            },
            Kind::kAllocatorChurn, 33);
}

TEST(Diagnose, APageableUploadIsSlowAndBlocks) {
    for (const double bytes : {21e6, 150e6})
        expect_case(
            [=](SimulatedProgram& p, int step, bool cured) {
                p.at(35);
                p.upload(bytes, cured, static_cast<std::uint64_t>(step % 8 + 1));
                if (!cured) p.stream_sync();
                train(p, {8, 300});
            },
            Kind::kPageableCopy, 35);
}

TEST(Diagnose, AnAssumedLinkIsSaidAndLowersConfidence) {
    Timeline timeline = simulate(
                            [](SimulatedProgram& p, int step, bool) {
                                p.at(35);
                                p.upload(80e6, false, static_cast<std::uint64_t>(step % 8 + 1));
                                train(p, {8, 300});
                            },
                            false)
                            .timeline;
    const Diagnosis sure = diagnose(timeline);
    timeline.link_is_assumed = true;
    const Diagnosis assumed = diagnose(timeline);
    ASSERT_FALSE(sure.findings.empty());
    ASSERT_FALSE(assumed.findings.empty());
    EXPECT_EQ(assumed.findings[0].kind, Kind::kPageableCopy);
    EXPECT_EQ(assumed.findings[0].lost_ms_per_step, sure.findings[0].lost_ms_per_step);
    EXPECT_LT(assumed.findings[0].confidence, sure.findings[0].confidence);
    EXPECT_NE(assumed.findings[0].assumption.find("not recorded"), std::string::npos) << assumed.findings[0].assumption;
    EXPECT_EQ(sure.findings[0].assumption.find("not recorded"), std::string::npos) << sure.findings[0].assumption;
}

TEST(Diagnose, AFullQueueHidesNoCost) {
    // A short queue fills at once; nearly every launch then takes as long as a kernel.
    SimulatedProgram::Traits traits;
    traits.queue = 130;
    expect_case(
        [](SimulatedProgram& p, int step, bool cured) {
            train(p, {12, 300});
            p.at(31);
            if (step % 7 == 6 && !cured) {
                p.item();
                p.work(20'000);
            }
        },
        Kind::kHostSync, 31, traits, 150);
}

TEST(Diagnose, APageableUploadOnASecondStream) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at(35);
            p.upload(90e6, cured, 0, kSideStream);
            p.stream_wait(kStream, kSideStream);
            train(p, {8, 300});
            p.stream_wait(kSideStream, kStream);
        },
        Kind::kPageableCopy, 35);
}

TEST(Diagnose, TooFewLoaderWorkers) {
    for (const double batch : {31'000.0, 140'000.0})
        expect_case(
            [=](SimulatedProgram& p, int, bool cured) {
                p.next_batch(cured ? 1'000 : batch, 2, 37);
                p.at(38);
                p.upload(4e6, true);
                train(p, {4, 200});
            },
            Kind::kLoaderWait, 37);
}

TEST(Diagnose, ALoaderThatKeepsUpIsNoFinding) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.next_batch(15'000, 4, 37);
        p.at(38);
        p.upload(1e6, true);
        train(p, {12, 500});
    });
}

TEST(Diagnose, AReadCostsNothingWhereTheLoaderSetsThePace) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.next_batch(60'000, 2, 37);
        p.at(38);
        p.upload(4e6, true);
        train(p, {8, 400});
        p.at(39);
        if (!cured) p.item();
    };
    const Simulation sick = simulate(body, false), cured = simulate(body, true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_LT(sick.step_ms - cured.step_ms, 0.02 * sick.step_ms);
    ASSERT_EQ(diagnosis.findings.size(), 1u);
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLoaderWait);
}

TEST(Diagnose, SmallKernelsAreLaunchBound) {
    for (const double launch : {4.0, 9.0, 31.0}) {
        SimulatedProgram::Traits traits;
        traits.launch_us = launch;
        // Cured: the same kernels as one graph.
        expect_case(
            [](SimulatedProgram& p, int, bool cured) {
                p.at({torch_line("nn/modules/module.py", "_call_impl"), user_line(7, "train_step"), user_line(18)});
                if (cured) {
                    p.graph(151 * 3, 151);
                    return;
                }
                for (int i = 0; i < 151; ++i) p.launch("small" + std::to_string(i % 7 + (i > 120 ? 10 : 0)), 3);
            },
            Kind::kLaunchBound, 7, traits);
    }
}

TEST(Diagnose, ALoopWithoutAFunctionIsNamedByItsBusiestLine) {
    const Diagnosis diagnosis = diagnose(simulate([](SimulatedProgram& p, int, bool) { train(p, {30, 4}); }, false).timeline);
    ASSERT_NE(finding_of(diagnosis, Kind::kLaunchBound), nullptr) << told(diagnosis);
    ASSERT_TRUE(diagnosis.findings.front().where);
    EXPECT_EQ(diagnosis.findings.front().where->line, 21);  // backward: three launches of five, by where the main thread waits
}

TEST(Diagnose, OneGraphPerStepIsHealthy) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.at(9);
        p.graph(5'000, 311);
    });
}

TEST(Diagnose, WhatRecordingAddsToEachCallIsNotTheProgramsFault) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at({user_line(7, "train_step"), user_line(18)});
        if (cured)
            p.graph(151 * 3, 151);
        else
            for (int i = 0; i < 151; ++i) p.launch("small" + std::to_string(i % 7 + (i > 120 ? 10 : 0)), 3);
    };
    SimulatedProgram::Traits recorded;
    recorded.recording_us = 9;
    Simulation sick = simulate(body, false, 60, recorded);
    const Simulation undisturbed = simulate(body, false), cured = simulate(body, true);
    sick.timeline.blocks.push_back({0, static_cast<Time>(undisturbed.step_ms * 1e6 * 1000), 1000});
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    const double truth = undisturbed.step_ms - cured.step_ms;
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLaunchBound);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, truth, 0.1 * truth);
    ASSERT_TRUE(diagnosis.window_overhead_share);
    EXPECT_NEAR(*diagnosis.window_overhead_share, sick.step_ms / undisturbed.step_ms - 1, 0.02);
}

TEST(Diagnose, HostWorkLongerThanTheGpusIsPythonWork) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(14, "augment"), user_line(30)});
            if (!cured) p.work(30'000);
            p.at(31);
            p.upload(1e6, true);
            train(p, {8, 400});
        },
        Kind::kPythonWork, 14);
}

TEST(Diagnose, HostWorkBesideABusyGpuIsNoFinding) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.at({user_line(14, "augment"), user_line(30)});
        p.work(6'000);
        train(p, {12, 400});
    });
}

TEST(Diagnose, ACheckpointEveryTenthStepIsFileOutput) {
    expect_case(
        [](SimulatedProgram& p, int step, bool cured) {
            train(p, {6, 300});
            p.at({torch_line("serialization.py", "save"), user_line(44, "save")});
            if (step % 10 == 9 && !cured) {
                p.item();
                p.work(80'000, 'D', "write");
            }
        },
        Kind::kFileOutput, 44, {}, 104);
}

TEST(Diagnose, CollectionsAreToldApartFromTheWorkAroundThem) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        p.at({user_line(14, "augment")});
        if (!cured) p.collect_garbage(25'000);
        train(p, {6, 300});
    };
    const Simulation sick = simulate(body, false), cured = simulate(body, true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kPythonWork);
    EXPECT_NE(diagnosis.findings.front().what.find("garbage"), std::string::npos);
    EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, sick.step_ms - cured.step_ms, 0.25 * (sick.step_ms - cured.step_ms));
    EXPECT_GT(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kGarbageCollection)], 0.5 * (sick.step_ms - cured.step_ms));
}

TEST(Diagnose, GradientAccumulationKeepsTheWholeStep) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        for (int micro = 0; micro < 4; ++micro) {
            p.at({user_line(12, "choose_rows")});
            p.work(3'000);
            train(p, {5, 300}, false);
            p.at(31);
            if (!cured) p.item();
        }
        p.at(33);
        p.launch("clip_norm", 30);
        p.launch("multi_tensor_apply_kernel", 50);
    };
    expect_case(body, Kind::kHostSync, 31);
    EXPECT_NEAR(diagnose(simulate(body, false).timeline).step_ms, simulate(body, false).step_ms,
                0.05 * simulate(body, false).step_ms);
}

TEST(Diagnose, StartUpIsLeftOutOfFewStepsToo) {
    const auto body = [](SimulatedProgram& p, int step, bool) {
        p.at(11);
        if (step < 2) p.work(300'000);
        train(p, {});
    };
    const Diagnosis diagnosis = diagnose(simulate(body, false, 8).timeline);
    EXPECT_GE(diagnosis.steps, 4u);
    EXPECT_NEAR(sum_of(diagnosis), 15.4, 0.5) << told(diagnosis);
}

TEST(Diagnose, EvaluationIsToldApartFromTraining) {
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        train(p, {8, 400});
        if (step % 15 != 14) return;
        for (int batch = 0; batch < 12; ++batch) {
            p.at({user_line(62, "evaluate")});
            if (!cured) p.work(9'000);
            for (int i = 0; i < 8; ++i) p.launch("gemm_eval", 200);
            if (!cured) p.item();
        }
    };
    const Simulation sick = simulate(body, false, 120), cured = simulate(body, true, 120);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(fmt::format("truth {}\n{}", sick.step_ms - cured.step_ms, told(diagnosis)));
    const auto found = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                                    [](const Finding& finding) { return finding.kind == Kind::kSlowEvaluation; });
    ASSERT_NE(found, diagnosis.findings.end());
    EXPECT_EQ(found->where->line, 62);
    EXPECT_NEAR(found->lost_ms_per_step, sick.step_ms - cured.step_ms, 0.3 * (sick.step_ms - cured.step_ms));
    EXPECT_LT(diagnosis.step_ms, 0.7 * sick.step_ms);
}

TEST(Diagnose, AThreadThatCopiesBesideTheHostIsNotItsLine) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.foreign_upload(8e6);
        train(p, {8, 400});
    });
}

TEST(Diagnose, MarkedStepsAreTaken) {
    SimulatedProgram program({});
    for (int i = 0; i < 12; ++i) {
        const double begin = program.now_us();
        for (int inner = 0; inner < 3; ++inner) train(program, {4, 100});
        program.mark_step("ProfilerStep#" + std::to_string(i), begin);
    }
    program.record_window();
    const Diagnosis diagnosis = diagnose(program.take());
    EXPECT_GE(diagnosis.steps, 7u);
    EXPECT_NEAR(diagnosis.step_ms, 3 * 4 * 3.25 * 0.1 + 3 * 0.055, 0.3) << told(diagnosis);
}

TEST(Diagnose, NothingAtAllIsNoCleanBill) {
    EXPECT_FALSE(diagnose(Timeline{}).healthy);
    Timeline lonely;
    lonely.names = {"", "kernel"};
    lonely.work.push_back({10, 20, 1, 0, WorkKind::kKernel, false, 7, 1, 0});
    EXPECT_FALSE(diagnose(lonely).healthy);
}

}  // namespace
}  // namespace millrace::diagnose
