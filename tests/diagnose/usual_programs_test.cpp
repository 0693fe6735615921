// Loops as people write them, ill and well: the right answer, or none; no false alarm.

#include <gtest/gtest.h>

#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

const Stack kPrint{{"/usr/lib/python3/dist-packages/tqdm/std.py", 1000, "update", false}, user_line(52)};
const Stack kSave{torch_line("serialization.py", "save"), user_line(44, "save_checkpoint")};
const Stack kEnvironment{{"/usr/lib/python3/dist-packages/gymnasium/core.py", 200, "step", false}, user_line(63, "rollout")};

/// Forward and backward of one micro-batch, without an update.
void micro_batch(SimulatedProgram& p, double kernel_us) { train(p, {5, kernel_us}, false); }

void update(SimulatedProgram& p) {
    p.at({torch_line("optim/adamw.py", "step"), user_line(22)});
    p.launch("multi_tensor_apply_kernel", 120);
}

Diagnosis diagnosed(const StepBody& body, int steps = 60, SimulatedProgram::Traits traits = {}) {
    return diagnose(simulate(body, false, steps, traits).timeline);
}

void expect_no_findings(const StepBody& body, int steps = 60, SimulatedProgram::Traits traits = {}) {
    const Diagnosis diagnosis = diagnosed(body, steps, traits);
    EXPECT_TRUE(diagnosis.findings.empty()) << told(diagnosis);
}

TEST(UsualPrograms, AReadPerMicroBatch) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            for (int micro = 0; micro < 8; ++micro) {
                p.at({user_line(11, "get_batch")});
                p.work(1'500);
                p.upload(2e5, true);
                micro_batch(p, 300);
                p.at(31);
                if (!cured) p.item();
            }
            update(p);
        },
        Kind::kHostSync, 31);
}

TEST(UsualPrograms, AProgressBarThatReadsTheLoss) {
    // The read is what costs: printing itself takes a moment.
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(11, "get_batch")});
            p.work(2'500);
            train(p, {10, 300});
            p.at(51);
            if (!cured) p.item();
            p.at(kPrint);
            p.work(90, 'S', "write");
        },
        Kind::kHostSync, 51);
    // Without the read it hides beside the GPU.
    expect_healthy([](SimulatedProgram& p, int, bool) {
        train(p, {10, 300});
        p.at(kPrint);
        p.work(400, 'S', "write");
    });
}

TEST(UsualPrograms, SynchronizeAroundAClock) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(11, "get_batch")});
            p.work(2'000);
            p.at(27);
            if (!cured) p.device_sync();
            train(p, {10, 300});
            p.at(28);
            if (!cured) p.device_sync();
        },
        Kind::kHostSync, 28);
}

TEST(UsualPrograms, ABranchOnALoss) {
    expect_case(
        [](SimulatedProgram& p, int step, bool cured) {
            train(p, {6, 300}, false);
            p.at({user_line(24, "skip_if_large")});
            p.launch("compare", 3);
            if (!cured) p.download(1, true), p.stream_sync();
            p.at({user_line(13, "schedule")});
            p.work(1'200);
            p.at(22);
            if (step % 9 != 8) p.launch("multi_tensor_apply_kernel", 150);
        },
        Kind::kHostSync, 24, {}, 90);
}

TEST(UsualPrograms, ValidationAfterEachEpochIsNoStep) {
    const StepBody body = [](SimulatedProgram& p, int step, bool) {
        train(p, {8, 400});
        if (step % 20 != 19) return;
        for (int batch = 0; batch < 6; ++batch) {
            p.at({user_line(71, "validate")});
            for (int i = 0; i < 8; ++i) p.launch("gemm_bf16", 380), p.launch("relu_eval", 40);
        }
        p.item();
    };
    const Diagnosis diagnosis = diagnosed(body, 110);
    SCOPED_TRACE(told(diagnosis));
    EXPECT_TRUE(diagnosis.healthy);
    EXPECT_TRUE(diagnosis.findings.empty());
    EXPECT_NEAR(diagnosis.step_ms, 8 * 3.25 * 0.4 + 0.22, 0.2);
}

TEST(UsualPrograms, ACheckpointEveryFewSteps) {
    for (const int every : {10, 25})
        expect_case(
            [=](SimulatedProgram& p, int step, bool cured) {
                train(p, {8, 300});
                if (step % every != every - 1 || cured) return;
                p.at(kSave);
                for (int i = 0; i < 12; ++i) {
                    p.download(3e6, false);
                    p.work(4'000);
                    p.work(6'000, 'D', "write");
                }
            },
            Kind::kFileOutput, 44, {}, 130);
}

TEST(UsualPrograms, ALoaderWithoutWorkers) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(91, "__getitem__"), torch_line("utils/data/_utils/fetch.py", "fetch"),
                  torch_line("utils/data/dataloader.py", "_next_data"), user_line(29)});
            if (!cured) p.work(25'000);
            p.at(30);
            p.upload(3e6, true);
            train(p, {8, 300});
        },
        Kind::kLoaderWait, 91);
}

TEST(UsualPrograms, SeveralStreamsThatOverlapAreHealthy) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.at(15);
        p.upload(8e6, true, 0, kSideStream);
        train(p, {8, 400});
        p.at(16);
        p.stream_wait(kStream, kSideStream);
    });
}

/// Gradients are summed on a second stream while the backward pass goes on; the update waits for the last.
void step_of_a_rank(SimulatedProgram& p, double reduce_us) {
    train(p, {4, 400}, false);
    p.begin_backward(21);
    for (int bucket = 0; bucket < 4; ++bucket) {
        for (int i = 0; i < 4; ++i) p.launch("gemm_wgrad_bucket", 350);
        p.stream_wait(kSideStream, kStream);
        p.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", reduce_us, kSideStream);
    }
    p.end_backward();
    p.at(22);
    p.stream_wait(kStream, kSideStream);
    p.launch("multi_tensor_apply_kernel", 200);
}

TEST(UsualPrograms, ReducingGradientsBesideTheBackwardPassIsHealthy) {
    expect_no_findings([](SimulatedProgram& p, int, bool) { step_of_a_rank(p, 900); });
    // Exposed communication is not the host's fault.
    expect_no_findings([](SimulatedProgram& p, int, bool) { step_of_a_rank(p, 4'000); });
}

TEST(UsualPrograms, AReadBesideReducedGradients) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(11, "get_batch")});
            p.work(3'000);
            step_of_a_rank(p, 900);
            p.at(31);
            if (!cured) p.item();
        },
        Kind::kHostSync, 31);
}

/// One request: tokens in, layers, a token out.
void infer(SimulatedProgram& p, double kernel_us) {
    p.at(80);
    p.upload(4096, true);
    for (int i = 0; i < 20; ++i) p.launch("gemm_bf16", kernel_us), p.launch("attention_fwd", kernel_us / 2);
    p.launch("argmax", 6);
}

TEST(UsualPrograms, InferenceOfLargeBatchesIsHealthy) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        infer(p, 500);
        p.at(81);
        p.item();
    });
}

TEST(UsualPrograms, InferenceOfOneTokenIsLaunchBound) {
    const Diagnosis diagnosis = diagnosed([](SimulatedProgram& p, int, bool) {
        infer(p, 3);
        p.at(81);
        p.item();
    });
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kLaunchBound);
    EXPECT_EQ(diagnosis.findings.front().where->line, 80);
}

TEST(UsualPrograms, AnEnvironmentInPythonSetsThePace) {
    // Acting needs the result, so the read cannot go; the environment's time is what most is lost with.
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(60, "act")});
            for (int i = 0; i < 8; ++i) p.launch("policy_gemm" + std::to_string(i), 25);
            p.at({user_line(61, "act")});
            p.item();
            p.at(kEnvironment);
            if (!cured) p.work(12'000);
        },
        Kind::kPythonWork, 63);
}

TEST(UsualPrograms, SmallKernelsBetweenLargeOnesAreHealthyWhereTheHostIsAhead) {
    expect_healthy([](SimulatedProgram& p, int, bool) {
        p.at(20);
        for (int i = 0; i < 12; ++i) {
            p.launch("gemm_bf16", 700);
            for (int j = 0; j < 12; ++j) p.launch("small" + std::to_string(j), 3);
        }
        p.launch("multi_tensor_apply_kernel", 90);
    });
}

TEST(UsualPrograms, ASlowHostThatIsAheadIsHealthy) {
    SimulatedProgram::Traits slow;
    slow.launch_us = 25;
    slow.operator_us = 60;
    expect_healthy([](SimulatedProgram& p, int, bool) { train(p, {12, 600}); }, slow);
    // Nearly as slow as the GPU, still ahead.
    expect_healthy([](SimulatedProgram& p, int, bool) { train(p, {12, 170}); }, slow);
}

TEST(UsualPrograms, BatchesOfDifferentLengthsAreStillSteps) {
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        const double length = 150 + 37 * ((step * 7) % 11);
        p.at({user_line(11, "pad")});
        p.work(3'000);
        p.at(20);
        for (int i = 0; i < 10; ++i) {
            p.launch(step % 3 == 0 ? "gemm_128x64" : step % 3 == 1 ? "gemm_128x128" : "gemm_256x128", length);
            p.launch("gelu_elementwise_kernel", length / 8);
            p.launch("gemm_dgrad_" + std::to_string(step * 7 % 4), length);
        }
        p.at(22);
        p.launch("multi_tensor_apply_kernel", 100);
        p.at(31);
        if (!cured) p.item();
    };
    const Diagnosis diagnosis = diagnosed(body, 90);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings.front().kind, Kind::kHostSync);
    const double sick = simulate(body, false, 90).step_ms, truth = sick - simulate(body, true, 90).step_ms;
    // Steps, or a remark that there are none and a cost per window.
    if (diagnosis.steps > 10) {
        EXPECT_NEAR(diagnosis.findings.front().lost_ms_per_step, truth, 0.25 * truth);
        EXPECT_NEAR(diagnosis.step_ms, sick, 0.3 * sick);
    } else {
        EXPECT_FALSE(diagnosis.remarks.empty());
        EXPECT_LT(diagnosis.findings.front().confidence, 0.6);
    }
}

TEST(UsualPrograms, StepsOfChangingStructureEndWithTheirUpdate) {
    const StepBody body = [](SimulatedProgram& p, int step, bool cured) {
        p.at({user_line(11, "build_tree")});
        p.work(2'000);
        p.at(20);
        for (int i = 0; i < 8 + step * 7 % 13; ++i) {
            p.launch("gemm", 200);
            p.launch("act" + std::to_string(i * step % 3), 60);
        }
        p.at(22);
        p.launch("multi_tensor_apply_kernel", 300);
        p.at(31);
        if (!cured) p.item();
    };
    expect_case(body, Kind::kHostSync, 31, {}, 100);
    EXPECT_GT(diagnosed(body, 100).steps, 90u);
}

TEST(UsualPrograms, RolloutsBetweenUpdatesAreTheEnvironments) {
    const Diagnosis diagnosis = diagnosed(
        [](SimulatedProgram& p, int, bool) {
            for (int i = 0; i < 64; ++i) {
                p.at({user_line(60, "act")});
                p.upload(4'000, true);
                for (int k = 0; k < 4; ++k) p.launch("policy_gemm", 15), p.launch("tanh", 4);
                p.item();
                p.at(kEnvironment);
                p.work(1'500);
            }
            for (int epoch = 0; epoch < 10; ++epoch) train(p, {4, 100});
        },
        20);
    SCOPED_TRACE(told(diagnosis));
    // An update is a step, and what the environments take belongs to what lies between them.
    EXPECT_NEAR(static_cast<double>(diagnosis.steps), 195, 5);
    const Finding* const found = finding_of(diagnosis, Kind::kSlowEvaluation);
    ASSERT_TRUE(found && found->where);
    EXPECT_EQ(found->where->line, 60);
}

TEST(UsualPrograms, NothingThatReturnsIsSaidToBeNone) {
    const Diagnosis diagnosis = diagnosed([](SimulatedProgram& p, int step, bool) {
        p.at(20);
        for (int i = 0; i < 5 + step * 5 % 13; ++i) p.launch("kernel" + std::to_string(step * 31 + i * i), 120);
    });
    SCOPED_TRACE(told(diagnosis));
    EXPECT_TRUE(diagnosis.findings.empty());
    bool said = false;
    for (const std::string& remark : diagnosis.remarks) said = said || remark.find("step") != std::string::npos;
    EXPECT_TRUE(said);
}

TEST(UsualPrograms, FiveStepsAreLookedAtWithLessConfidence) {
    const StepBody body = [](SimulatedProgram& p, int, bool) {
        p.at({user_line(11, "get_batch")});
        p.work(6'000);
        train(p, {12, 400});
        p.at(31);
        p.item();
    };
    const Diagnosis few = diagnosed(body, 5), many = diagnosed(body, 60);
    SCOPED_TRACE(told(few));
    EXPECT_FALSE(few.healthy);
    ASSERT_FALSE(many.findings.empty());
    if (!few.findings.empty()) {
        EXPECT_EQ(few.findings.front().kind, Kind::kHostSync);
        EXPECT_LT(few.findings.front().confidence, many.findings.front().confidence);
    }
    EXPECT_FALSE(few.remarks.empty());
    expect_no_findings([](SimulatedProgram& p, int, bool) { train(p, {12, 400}); }, 5);
}

TEST(UsualPrograms, EvaluationAloneHasStepsToo) {
    expect_case(
        [](SimulatedProgram& p, int, bool cured) {
            p.at({user_line(11, "get_batch")});
            p.work(3'000);
            p.at({user_line(71, "validate")});
            for (int i = 0; i < 12; ++i) p.launch("gemm_bf16", 400), p.launch("gelu", 50);
            p.launch("count_right", 5);
            p.at({user_line(72, "validate")});
            if (!cured) p.item();
        },
        Kind::kHostSync, 72);
}

}  // namespace
}  // namespace millrace::diagnose
