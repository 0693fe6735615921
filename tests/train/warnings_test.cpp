#include "train/warnings.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace::train {
namespace {

/// A GPU that is well used by a run with nothing to complain about.
TrainingEvidence healthy() {
    TrainingEvidence e;
    e.machine.samples = 20;
    e.machine.line.gpus = {{85.0, 12e9, 24e9}};
    e.machine.resident_percent = 85;
    e.machine.line.cpu_percent = 45;
    e.machine.line.ram_used_bytes = 18e9;
    e.machine.line.ram_total_bytes = 64e9;
    e.machine.vram_peak_bytes = 13e9;
    e.machine.ram_peak_bytes = 20e9;
    e.machine.throttled_share = 0;
    e.loader.wait_ms = {1000, 0.01, 0.01, 0.01, 0.02, 0, 0.1};
    e.step_ms = 1.0;
    e.on_gpu = true;
    e.batch = 32;
    return e;
}

std::vector<std::string> causes(const TrainingEvidence& evidence) {
    std::vector<std::string> found;
    for (const Warning& warning : judge(evidence)) found.push_back(warning.cause);
    return found;
}

std::string text_of(const TrainingEvidence& evidence) {
    const std::vector<Warning> warnings = judge(evidence);
    return warnings.size() == 1 ? warnings.front().text : "not one warning";
}

TEST(Warnings, HealthyRunHasNone) { EXPECT_TRUE(causes(healthy()).empty()); }

TEST(Warnings, LowUtilizationNamesEvidenceAndSetting) {
    TrainingEvidence e = healthy();
    e.machine.resident_percent = 11.4;
    e.machine.sm_active_percent = 4;
    EXPECT_EQ(causes(e), std::vector<std::string>{"low_utilization"});
    EXPECT_NE(text_of(e).find("11 % of the time (20 samples, 4 % of the chip was busy)"), std::string::npos) << text_of(e);
    EXPECT_NE(text_of(e).find("steps did not wait for data"), std::string::npos) << text_of(e);
    EXPECT_NE(text_of(e).find("members"), std::string::npos) << text_of(e);
    e.machine.resident_percent = 30;
    EXPECT_TRUE(causes(e).empty()) << "the limit itself is fine";
}

sense::Sample sample_of(double utilization, std::optional<double> graphics) {
    sense::Sample sample;
    sample.gpus.resize(1);
    sample.gpus[0].utilization = utilization;
    sample.gpus[0].graphics_active = graphics;
    return sample;
}

TEST(Warnings, CountersBeatTheDriversUtilization) {
    record::SampleSummary summary;
    for (int i = 0; i < 4; ++i) summary.add(sample_of(0, 90));
    EXPECT_EQ(machine_report(summary).resident_percent, 90);
    summary.clear();
    for (int i = 0; i < 4; ++i) summary.add(sample_of(70, std::nullopt));
    EXPECT_EQ(machine_report(summary).resident_percent, 70);
}

TEST(Warnings, ThrottlingIsTheShareOfSamplesWithAReason) {
    record::SampleSummary summary;
    summary.add(sample_of(70, std::nullopt));
    EXPECT_FALSE(machine_report(summary).throttled_share) << "the driver gives no reasons";
    summary.clear();
    for (std::uint32_t reasons : {0u, 1u, 1u, 2u}) {
        sense::Sample sample = sample_of(70, std::nullopt);
        sample.gpus[0].throttle = reasons;
        summary.add(sample);
    }
    EXPECT_EQ(machine_report(summary).throttled_share, 0.75);
    EXPECT_NE(machine_report(summary).throttle_reasons.find("power cap"), std::string::npos);
}

TEST(Warnings, LowUtilizationIsOneOfTheGpuThatTrains) {
    TrainingEvidence e = healthy();
    e.machine.resident_percent = 0;
    e.on_gpu = false;
    EXPECT_TRUE(causes(e).empty());
}

TEST(Warnings, FewSamplesSayNothing) {
    TrainingEvidence e = healthy();
    e.machine.resident_percent = 1;
    e.machine.throttled_share = 1;
    e.machine.samples = 2;
    EXPECT_TRUE(causes(e).empty());
    e.machine = {};
    EXPECT_TRUE(causes(e).empty()) << "nothing was measured";
}

TEST(Warnings, LoaderWaitIsMeasuredAgainstTheStep) {
    TrainingEvidence e = healthy();
    e.loader = {{500, 0.9, 0.2, 0, 4, 0, 120}, 3};
    e.step_ms = 10;
    EXPECT_EQ(causes(e), std::vector<std::string>{"loader_wait"});
    EXPECT_NE(text_of(e).find("0.90 ms on average"), std::string::npos) << text_of(e);
    EXPECT_NE(text_of(e).find("3 above 50 ms"), std::string::npos) << text_of(e);
    EXPECT_NE(text_of(e).find("9 % of a step of 10.00 ms"), std::string::npos) << text_of(e);
    e.step_ms = 18;  // 5 %
    EXPECT_TRUE(causes(e).empty());
    e.step_ms = 10;
    e.loader.wait_ms.count = 19;
    EXPECT_TRUE(causes(e).empty()) << "too few steps";
}

TEST(Warnings, LongMeanWaitIsOneWhateverTheStepTakes) {
    TrainingEvidence e = healthy();
    e.loader = {{500, 51, 50, 0, 60, 0, 70}, 0};
    e.step_ms = 2000;
    EXPECT_EQ(causes(e), std::vector<std::string>{"loader_wait"});
    EXPECT_NE(text_of(e).find("3 % of a step"), std::string::npos) << text_of(e);
    e.step_ms = 0;
    EXPECT_EQ(causes(e), std::vector<std::string>{"loader_wait"});
    EXPECT_EQ(text_of(e).find("of a step"), std::string::npos) << text_of(e);
    e.loader.wait_ms.mean = 50;
    EXPECT_TRUE(causes(e).empty());
}

TEST(Warnings, ManySpikesAreOneWithTheirWorst) {
    TrainingEvidence e = healthy();
    e.step_ms = 5000;  // the mean wait is no share of it
    LoaderSums sums;
    const auto add = [&sums](int count, int milliseconds) {
        for (int i = 0; i < count; ++i) sums.add(std::chrono::milliseconds{milliseconds});
    };
    add(10, 0);
    for (const int spike : {60, 310, 90, 70, 120}) {
        add(19, 0);
        add(1, spike);
    }
    e.loader = sums.report();
    EXPECT_TRUE(causes(e).empty()) << "5 of 110";
    add(1, 80);
    e.loader = sums.report();
    EXPECT_EQ(causes(e), std::vector<std::string>{"loader_spikes"});
    EXPECT_EQ(
        text_of(e),
        "6 of 111 steps (5 %) waited more than 50 ms for their data, one every 16.2 steps, the worst 310, 120, 90, 80, 70 ms; "
        "events.jsonl has what the machine did at each: look there for other programs on the disk or the CPU, and for memory "
        "that runs short");
    add(6, 55);
    e.loader = sums.report();
    EXPECT_NE(text_of(e).find("12 of 117 steps (10 %)"), std::string::npos) << text_of(e);
    EXPECT_NE(text_of(e).find("a faster disk"), std::string::npos) << text_of(e);
    e.loader.wait_ms.count = 19;
    EXPECT_TRUE(causes(e).empty()) << "too few steps";
}

TEST(Warnings, WaitingForDataExplainsAnIdleGpu) {
    TrainingEvidence e = healthy();
    e.machine.resident_percent = 10;
    e.loader = {{500, 9, 9, 8, 10, 7, 20}, 0};
    e.step_ms = 10;
    const std::vector<Warning> warnings = judge(e);
    ASSERT_EQ(warnings.size(), 2u);
    EXPECT_NE(warnings[0].text.find("waited 9.00 ms of 10.00"), std::string::npos) << warnings[0].text;
    EXPECT_EQ(warnings[0].text.find("members"), std::string::npos) << "other advice would be folklore";
}

TEST(Warnings, MemoryAtTheEdge) {
    TrainingEvidence e = healthy();
    e.machine.vram_peak_bytes = 23.5e9;
    EXPECT_EQ(causes(e), std::vector<std::string>{"vram_edge"});
    EXPECT_NE(text_of(e).find("98 %"), std::string::npos) << text_of(e);
    e = healthy();
    e.machine.ram_peak_bytes = 62e9;
    EXPECT_EQ(causes(e), std::vector<std::string>{"ram_edge"});
}

TEST(Warnings, ThrottlingNamesItsReasons) {
    TrainingEvidence e = healthy();
    e.machine.throttled_share = 0.6;
    e.machine.throttle_reasons = "power cap";
    e.machine.power_watts = 590;
    EXPECT_EQ(causes(e), std::vector<std::string>{"throttled"});
    EXPECT_NE(text_of(e).find("60 % of 20 samples (power cap, 590 W)"), std::string::npos) << text_of(e);
    e.machine.throttled_share = 0.1;
    EXPECT_TRUE(causes(e).empty()) << "clocks settling";
}

TEST(Warnings, GateLetsACauseThroughOncePerEpoch) {
    WarningGate gate;
    EXPECT_EQ(gate.admit({{"a", "1"}, {"b", "2"}, {"a", "3"}}).size(), 2u);
    EXPECT_TRUE(gate.admit({{"a", "4"}}).empty());
    gate.begin_epoch();
    EXPECT_EQ(gate.admit({{"a", "5"}}).front().text, "5");
}

}  // namespace
}  // namespace millrace::train
