#include <gtest/gtest.h>

#include <cmath>

#include <numeric>

#include "diagnose/diagnose.h"

namespace millrace::diagnose {
namespace {

/// Ten blocks of 100 steps of `step_ms`, and as many samples of the machine.
Timeline run(double step_ms, std::optional<double> wait_ms, double utilization) {
    Timeline timeline;
    timeline.source = Source::kTraining;
    timeline.device_name = "NVIDIA H200";
    timeline.names.emplace_back();
    timeline.stacks.emplace_back();
    Time at = 0;
    for (int i = 0; i < 10; ++i) {
        const Time end = at + static_cast<Time>(step_ms * 100 * 1e6);
        timeline.blocks.push_back({at, end, 100, wait_ms});
        MachineSample sample;
        sample.time = at;
        sample.gpu_utilization = utilization;
        sample.memory_used_bytes = 50;
        sample.memory_total_bytes = 100;
        sample.throttled = false;
        timeline.machine.push_back(sample);
        at = end;
    }
    return timeline;
}

double sum(const Diagnosis& diagnosis) {
    return std::accumulate(diagnosis.breakdown_ms.begin(), diagnosis.breakdown_ms.end(), 0.0);
}

TEST(TrainingDiagnosis, ABusyGpuWithoutWaitsIsHealthy) {
    const Diagnosis diagnosis = diagnose(run(2, 0.001, 0.97));
    EXPECT_TRUE(diagnosis.healthy);
    EXPECT_TRUE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.steps, 1000u);
    EXPECT_NEAR(diagnosis.step_ms, 2, 1e-9);
    EXPECT_NEAR(diagnosis.busy_share, 0.97, 1e-9);
    EXPECT_NEAR(sum(diagnosis), 2, 1e-9);
}

TEST(TrainingDiagnosis, StepsThatWaitForDataAreAFinding) {
    const Diagnosis diagnosis = diagnose(run(10, 4, 0.5));
    EXPECT_FALSE(diagnosis.healthy);
    ASSERT_EQ(diagnosis.findings.size(), 1u);
    EXPECT_EQ(diagnosis.findings[0].kind, Kind::kLoaderWait);
    EXPECT_EQ(diagnosis.findings[0].severity, Severity::kCritical);
    EXPECT_NEAR(diagnosis.findings[0].lost_ms_per_step, 4, 1e-9);
    EXPECT_NEAR(*diagnosis.findings[0].gain_upper_bound, 0.4, 1e-9);
    EXPECT_NEAR(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kLoaderWait)], 4, 1e-9);
    EXPECT_NEAR(diagnosis.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 1, 1e-9);
    EXPECT_NEAR(sum(diagnosis), 10, 1e-9);
}

TEST(TrainingDiagnosis, PartsNeverExceedTheStep) {
    const Diagnosis diagnosis = diagnose(run(10, 25, 1));  // a wait that cannot be
    EXPECT_NEAR(sum(diagnosis), 10, 1e-9);
    for (const double part : diagnosis.breakdown_ms) EXPECT_GE(part, 0);
}

TEST(TrainingDiagnosis, MemoryAtItsEdgeAndHeatAreSaid) {
    Timeline timeline = run(2, 0, 0.97);
    for (MachineSample& sample : timeline.machine) {
        sample.memory_used_bytes = 98;
        sample.throttled = true;
        sample.throttle_reason = "power cap";
    }
    ASSERT_EQ(diagnose(timeline).findings.size(), 1u);  // a power cap is no illness
    EXPECT_EQ(diagnose(timeline).findings[0].kind, Kind::kMemoryEdge);
    for (int i = 0; i < 6; ++i) timeline.machine[static_cast<std::size_t>(i)].throttle_reason = "power cap, thermal";
    const Diagnosis hot = diagnose(timeline);
    ASSERT_EQ(hot.findings.size(), 2u);
    EXPECT_EQ(hot.findings[1].kind, Kind::kThrottled);
    EXPECT_EQ(hot.findings[1].severity, Severity::kCritical);
    EXPECT_FALSE(hot.healthy);
}

TEST(TrainingDiagnosis, AnIdleGpuWithoutAKnownCauseIsNoCleanBill) {
    const Diagnosis diagnosis = diagnose(run(2, 0, 0.2));
    EXPECT_FALSE(diagnosis.healthy);
    EXPECT_TRUE(diagnosis.findings.empty());
    EXPECT_NE(diagnosis.remarks.back().find("20 %"), std::string::npos);
}

TEST(TrainingDiagnosis, ARunOnTheCpuHasNoGpuToSpeakOf) {
    Timeline timeline = run(2, 1, 0.9);
    timeline.device_name.clear();
    timeline.machine.clear();
    const Diagnosis diagnosis = diagnose(timeline);
    EXPECT_FALSE(diagnosis.healthy);
    EXPECT_EQ(diagnosis.steps, 0u);
    EXPECT_NE(diagnosis.remarks.front().find("on the CPU"), std::string::npos);
}

TEST(TrainingDiagnosis, NothingMeasuredIsNothingClaimed) {
    Timeline timeline = run(2, std::nullopt, 0.9);
    timeline.machine.clear();
    const Diagnosis without = diagnose(timeline);
    EXPECT_TRUE(std::isnan(without.busy_share));
    EXPECT_FALSE(without.healthy);
    EXPECT_NEAR(without.breakdown_ms[static_cast<std::size_t>(Owner::kUnexplained)], 2, 1e-9);
    EXPECT_NE(without.remarks.back().find("not sampled"), std::string::npos);
    timeline.blocks.clear();
    const Diagnosis nothing = diagnose(timeline);
    EXPECT_EQ(nothing.steps, 0u);
    EXPECT_FALSE(nothing.healthy);
}

}  // namespace
}  // namespace millrace::diagnose
