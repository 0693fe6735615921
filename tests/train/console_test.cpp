#include "train/console.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "fake_clock.h"

namespace millrace::train {
namespace {

IntervalReport some_interval() { return {2210, 8440, 2, 5, 0.43121, 41230.4, 40100, 1288.2, 12.3}; }

/// A file in memory that a console writes to.
class MemoryFile {
public:
    MemoryFile() : file_(open_memstream(&data_, &size_)) {}
    ~MemoryFile() {
        std::fclose(file_);
        std::free(data_);
    }
    std::FILE* file() { return file_; }
    std::string text() {
        std::fflush(file_);
        return {data_, size_};
    }

private:
    char* data_ = nullptr;
    std::size_t size_ = 0;
    std::FILE* file_;
};

TEST(Console, ProgressLineSaysWhereTheRunIs) {
    EXPECT_EQ(progress_text(some_interval()),
              "epoch 2/5  step 2210/8440  loss 0.4312  41,230 samples/s (average 40,100)  1,288 steps/s  12s left");
}

PaceReport some_pace() {
    PaceReport pace;
    pace.step_ms_p50 = 0.0893;
    pace.step_ms_p99 = 0.0951;
    pace.flops_per_second = 12.3e12;
    pace.flops_share_percent = 1.24;
    pace.joules_per_sample = 0.00081;
    pace.loader.wait_ms = {100, 0.5, 0.25, 0, 2, 0, 61.2};
    pace.loader.spikes = 2;
    pace.machine.samples = 3;
    pace.machine.line.gpus = {{85.0, 12.3 * (1u << 30), 24.0 * (1u << 30)}};
    pace.machine.line.cpu_percent = 45.2;
    pace.machine.sm_active_percent = 31;
    pace.machine.power_watts = 310.4;
    return pace;
}

TEST(Console, PaceSaysWhatTheMachineDid) {
    EXPECT_EQ(machine_text(some_pace()), "GPU: 85% | VRAM:12.3/24.0GB(51.2%) | CPU: 45.2% | chip busy 31% | 310 W");
    EXPECT_EQ(
        pace_text(some_pace()),
        "step 0.089 ms (p99 0.095) | 12.3 TFLOP/s, 1.2 % of peak | 0.81 mJ/sample | waited for data 0.500 ms (median 0.250, "
        "worst 61.200, 2 above 50 ms)");
    PaceReport slow;
    slow.flops_per_second = 76.34e9;
    EXPECT_EQ(pace_text(slow), "76.3 GFLOP/s");
    EXPECT_EQ(machine_text({}), "");
    EXPECT_EQ(pace_text({}), "");
}

TEST(Console, ProductionShowsLossesAndTimesAlone) {
    IntervalReport interval = some_interval();
    interval.pace = some_pace();
    EXPECT_EQ(progress_text(interval, Detail::losses), "epoch 2/5  step 2210/8440  loss 0.4312  12s left");
    EXPECT_TRUE(progress_text(interval).ends_with("12s left  GPU: 85% | VRAM:12.3/24.0GB(51.2%) | CPU: 45.2%"))
        << progress_text(interval);
    EpochReport epoch;
    epoch.epoch = 1;
    epoch.epochs = 2;
    epoch.training = {{0.5, 0.8}};
    epoch.seconds = 20;
    epoch.samples_per_second = 1000;
    epoch.pace = some_pace();
    EXPECT_EQ(epoch_text(epoch, Detail::losses), "epoch 1/2  train loss 0.5000 accuracy 80.00 %  20.0s");
    const std::string whole = epoch_text(epoch);
    EXPECT_NE(whole.find("1,000 samples/s\n    GPU: 85%"), std::string::npos) << whole;
    EXPECT_NE(whole.find("\n    step 0.089 ms"), std::string::npos) << whole;
}

TEST(Console, ComponentsAndOperatorsAddUp) {
    tape::PhaseTimes times;
    times.milliseconds = {0.1, 0.4, 0.1, 0.3, 0.1};
    times.total = 1.0;
    EXPECT_EQ(
        components_text(times, 1000),
        "step 1000: data 0.100 ms (10 %), forward 0.400 ms (40 %), loss 0.100 ms (10 %), backward 0.300 ms (30 %), optimizer "
        "0.100 ms (10 %); 1.000 ms with marks between them, counted in no speed");
    const std::string table = operators_text({{"add a", 10}, {"copy b", 70}, {"add a", 20}}, 3);
    EXPECT_NE(table.find("step 3: 3 kernels, 100.0 us"), std::string::npos) << table;
    EXPECT_LT(table.find("copy b"), table.find("add a x 2")) << table;
    EXPECT_NE(table.find(" 30.0 %  add a x 2"), std::string::npos) << table;
}

TEST(Console, TimeLeftGrowsIntoMinutes) {
    IntervalReport report = some_interval();
    report.seconds_left = 0.3;
    EXPECT_TRUE(progress_text(report).ends_with("  0s left")) << progress_text(report);
    report.seconds_left = 125.2;
    EXPECT_TRUE(progress_text(report).ends_with("  2m 5s left")) << progress_text(report);
}

TEST(Console, WhatWasNotMeasuredIsADash) {
    IntervalReport report = some_interval();
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.recent_samples = 0;
    report.seconds_left = -1;
    EXPECT_EQ(progress_text(report), "epoch 2/5  step 2210/8440  loss -  - samples/s (average 40,100)  1,288 steps/s  - left");
}

TEST(Console, EpochLineMarksTheBest) {
    EpochReport report;
    report.epoch = 2;
    report.epochs = 5;
    report.training = {{0.5, 0.8}};
    report.validation = {{0.25, 0.9}};
    report.seconds = 20;
    report.samples_per_second = 1000;
    EXPECT_EQ(epoch_text(report).find("new best"), std::string::npos);
    report.best = true;
    EXPECT_EQ(epoch_text(report),
              "epoch 2/5  train loss 0.5000 accuracy 80.00 %  validation loss 0.2500 accuracy 90.00 %  new best  20.0s  1,000 "
              "samples/s");
    report.validation = {{0.25, 0.9}, {0.75, 0.7}};
    EXPECT_NE(epoch_text(report).find("validation loss 0.5000 accuracy 80.00 % (best member 90.00 %)"), std::string::npos);
}

TEST(Console, LargeLossesAreShort) {
    EXPECT_EQ(loss_text(0.25), "0.2500");
    EXPECT_EQ(loss_text(1234.5), "1234.5000");
    EXPECT_EQ(loss_text(1.25e27), "1.25e+27");
    EXPECT_EQ(loss_text(std::numeric_limits<double>::infinity()), "-");
}

TEST(Console, StartSaysWhatIsAhead) {
    StartReport report;
    report.epochs = 1;
    report.steps_per_epoch = report.total_steps = 15;
    EXPECT_TRUE(start_text(report).ends_with("\n1 epoch of 15 steps")) << start_text(report);
    report.epochs = 5;
    report.total_steps = 20;
    EXPECT_TRUE(start_text(report).ends_with("\n20 steps, the beginning of 5 epochs of 15 steps")) << start_text(report);
    report.resumed = true;
    report.first_step = 20;
    EXPECT_TRUE(start_text(report).ends_with("\nnothing left of 20 steps")) << start_text(report);
}

TEST(Console, TheRunsMeasureChoosesTheMember) {
    RunResult result;
    result.members = {{0.9, 0.5, 1, 0, 0}, {0.8, 0.4, 1, 0, 0}, {0.95, NAN, 1, 0, 0}};
    EXPECT_EQ(best_member(result), 2u);
    result.best_metric = "validation_loss";
    EXPECT_EQ(best_member(result), 1u);
    result.members.front().validation_loss = NAN;
    EXPECT_EQ(best_member(result), 1u);
}

TEST(Console, ModelsWithoutClassesShowWhatTheirFamilyMeasures) {
    models::Scored scored{{{"validation_cosine", 0.5}}, "cosine 0.500 (ceiling 0.722)", {"mapper alone: loss 0.0400"}};
    EpochReport report;
    report.epoch = report.epochs = 1;
    report.classifies = false;
    report.training = {{0.0625, 0}};
    report.validation = {{0.03125, 0, scored}};
    const std::string epoch = epoch_text(report, Detail::losses);
    EXPECT_EQ(epoch.find("accuracy"), std::string::npos) << epoch;
    EXPECT_NE(epoch.find("train loss 0.0625  validation loss 0.0312 cosine 0.500 (ceiling 0.722)"), std::string::npos) << epoch;
    EXPECT_TRUE(epoch.ends_with("\n    mapper alone: loss 0.0400")) << epoch;

    RunResult result;
    result.run = "runs/x";
    result.classifies = result.tested = false;
    result.held = 500;
    result.best_metric = "validation_loss";
    result.members = {{0, 0.03125, 2, NAN, NAN, scored}};
    EXPECT_EQ(finish_text(result),
              "best weights (epoch 2) on 500 samples set aside: loss 0.0312 cosine 0.500 (ceiling 0.722)\nmapper alone: loss "
              "0.0400\nrun runs/x");
    result.best_metric = "validation_cosine";
    EXPECT_NE(finish_text(result).find("best weights (epoch 2, by validation_cosine) on 500"), std::string::npos);
    result.held = 0;
    EXPECT_NE(finish_text(result).find("nothing was scored"), std::string::npos);
}

TEST(Console, TheMeasureThatChoseIsNamed) {
    RunResult result;
    result.run = "runs/x";
    result.tested = false;
    result.best_metric = "file_f1";
    result.members = {{0.9, 0.125, 3, NAN, NAN, {}}};
    EXPECT_NE(finish_text(result).find("best weights (epoch 3, by file_f1): validation accuracy 90.00 %, loss 0.1250\n"),
              std::string::npos)
        << finish_text(result);
}

TEST(Console, PlainLinesKeepTheirDistance) {
    MemoryFile memory;
    base::FakeClock clock;
    Console console({memory.file(), false, false, std::chrono::seconds{10}}, clock);
    IntervalReport interval = some_interval();
    for (int second = 0; second < 25; ++second) {
        clock.advance(std::chrono::seconds{1});
        console.on_interval(interval);
    }
    const std::string text = memory.text();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
    EXPECT_EQ(text.find('\r'), std::string::npos);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Console, QuietPrintsTheEndAlone) {
    MemoryFile memory;
    base::FakeClock clock;
    Console console({memory.file(), false, true, {}}, clock);
    console.on_start({});
    IntervalReport interval = some_interval();
    console.on_interval(interval);
    EpochReport epoch;
    EXPECT_TRUE(console.on_epoch(epoch).ok());
    EXPECT_EQ(memory.text(), "");
    RunResult result;
    result.run = "runs/x";
    result.members = {{0.8, 0.5, 3, 0.75, 0.6}, {0.9, 0.4, 3, 0.7, 0.6}};
    console.on_finish(result);
    EXPECT_NE(memory.text().find("best validation accuracy 90.00 % (epoch 3)\ntest accuracy 70.00 %"), std::string::npos)
        << memory.text();
    EXPECT_NE(memory.text().find("member 1 of 2"), std::string::npos);
}

}  // namespace
}  // namespace millrace::train
