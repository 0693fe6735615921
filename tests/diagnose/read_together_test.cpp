#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

/// What a kernel takes before and after it works, in microseconds.
constexpr double kLatency = 3;

/// One value per parameter, read one by one at line 30, or computed in one kernel and kept. `work_us` of odd parameters; even
/// ones are tiny.
StepBody norms(int parameters, double work_us, int kernels = 1, Network net = {8, 300}) {
    return [=](SimulatedProgram& p, int, bool cured) {
        train(p, net);
        p.at({torch_line("_tensor.py", "norm"), user_line(30, "largest")});
        const double work = parameters / 2 * work_us * kernels;
        if (cured) {
            p.launch("multi_tensor_apply_kernel_norm", kLatency + work);
            return;
        }
        for (int i = 0; i < parameters; ++i) {
            for (int k = 0; k < kernels; ++k) p.launch("reduce_kernel", kLatency + (i % 2 == 1 ? work_us : 0));
            p.item();
        }
    };
}

const Finding* waits(const Diagnosis& diagnosis) { return finding_of(diagnosis, Kind::kHostSync); }

bool speaks_of_together(const Finding& finding) {
    return finding.evidence.find("computed together") != std::string::npos &&
           finding.assumption.find("computed together") != std::string::npos;
}

TEST(ReadTogether, SmallKernelsOfALoopThatReadsShrinkWithIt) {
    for (const int parameters : {29, 130}) {
        const StepBody body = norms(parameters, 2);
        const Simulation sick = simulate(body, false), cured = simulate(body, true);
        const Diagnosis diagnosis = diagnose(sick.timeline);
        const double truth = sick.step_ms - cured.step_ms;
        SCOPED_TRACE(fmt::format("truth {:.3f} of {:.3f} ms\n{}", truth, sick.step_ms, told(diagnosis)));
        ASSERT_NE(waits(diagnosis), nullptr);
        EXPECT_EQ(waits(diagnosis)->where->line, 30);
        // Without the kernels' latency and the copies' time a third would be missing.
        EXPECT_NEAR(waits(diagnosis)->lost_ms_per_step, truth, 0.05 * truth);
        EXPECT_TRUE(speaks_of_together(*waits(diagnosis)));
        EXPECT_NE(waits(diagnosis)->fix.find("together"), std::string::npos);
    }
}

TEST(ReadTogether, LongKernelsKeepTheirWork) {
    const StepBody body = [](SimulatedProgram& p, int, bool cured) {
        train(p, {8, 300});
        p.at({user_line(30)});
        for (int i = 0; i < 23; ++i) {
            p.launch("reduce_kernel", 150);
            if (!cured) p.item();
        }
    };
    const Simulation sick = simulate(body, false), cured = simulate(body, true);
    const Diagnosis diagnosis = diagnose(sick.timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_NE(waits(diagnosis), nullptr);
    EXPECT_NEAR(waits(diagnosis)->lost_ms_per_step, sick.step_ms - cured.step_ms, 0.05);
    EXPECT_FALSE(speaks_of_together(*waits(diagnosis)));
}

TEST(ReadTogether, FewReadsOrManyKernelsBetweenThemStayAsTheyAre) {
    const Diagnosis few = diagnose(simulate(norms(7, 2, 1, {2, 60}), false).timeline);
    SCOPED_TRACE(told(few));
    ASSERT_NE(waits(few), nullptr);
    EXPECT_FALSE(speaks_of_together(*waits(few)));
    // A token after the other: each is made of many kernels.
    const Diagnosis tokens = diagnose(simulate(norms(20, 5, 11), false).timeline);
    SCOPED_TRACE(told(tokens));
    ASSERT_NE(waits(tokens), nullptr);
    EXPECT_FALSE(speaks_of_together(*waits(tokens)));
}

TEST(ReadTogether, OneReadInEachShortStepIsNoLoop) {
    const Diagnosis diagnosis = diagnose(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 p.at({user_line(12)});
                                                 p.launch("gemm_bf16", 80);
                                                 p.launch("gelu_elementwise_kernel", 20);
                                                 p.launch("multi_tensor_apply_kernel", 30);
                                                 p.item();
                                             },
                                             false, 200)
                                             .timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_NE(waits(diagnosis), nullptr);
    EXPECT_FALSE(speaks_of_together(*waits(diagnosis)));
}

TEST(ReadTogether, KernelsOfAnotherLineBetweenReadsAreNotTheirs) {
    const Diagnosis diagnosis = diagnose(simulate(
                                             [](SimulatedProgram& p, int, bool) {
                                                 train(p, {4, 200});
                                                 for (int i = 0; i < 20; ++i) {
                                                     p.at({user_line(29)});
                                                     p.launch("gemm_bf16", 4);
                                                     p.at({user_line(30)});
                                                     p.item();
                                                 }
                                             },
                                             false)
                                             .timeline);
    SCOPED_TRACE(told(diagnosis));
    ASSERT_NE(waits(diagnosis), nullptr);
    EXPECT_FALSE(speaks_of_together(*waits(diagnosis)));
}

}  // namespace
}  // namespace millrace::diagnose
