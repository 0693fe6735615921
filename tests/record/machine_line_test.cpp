#include "record/machine_line.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace::record {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(MachineLine, EverythingKnownGivesTheWholeLine) {
    const MachineLineValues values{{{85.0, 12.288 * kGiB, 24 * kGiB}}, 45.2, 18.432 * kGiB, 64 * kGiB};
    EXPECT_EQ(machine_line(values), "GPU: 85% | VRAM:12.3/24.0GB(51.2%) | CPU: 45.2% | RAM:18.4/64.0GB(28.8%)");
}

TEST(MachineLine, WidthsHoldFromNothingToFull) {
    const MachineLineValues idle{{{0.0, 0.5 * kGiB, 24 * kGiB}}, 0.0, 1 * kGiB, 64 * kGiB};
    EXPECT_EQ(machine_line(idle), "GPU:  0% | VRAM: 0.5/24.0GB( 2.1%) | CPU:  0.0% | RAM: 1.0/64.0GB( 1.6%)");
    const MachineLineValues full{{{100.0, 24 * kGiB, 24 * kGiB}}, 100.0, 64 * kGiB, 64 * kGiB};
    EXPECT_EQ(machine_line(full), "GPU:100% | VRAM:24.0/24.0GB(100.0%) | CPU:100.0% | RAM:64.0/64.0GB(100.0%)");
}

TEST(MachineLine, AbsentItemsAreLeftOut) {
    EXPECT_EQ(machine_line({{}, 45.2, 18.4 * kGiB, {}}), "CPU: 45.2% | RAM:18.4GB");
    EXPECT_EQ(machine_line({{{std::nullopt, 1 * kGiB, 2 * kGiB}}, {}, {}, 64 * kGiB}), "VRAM: 1.0/2.0GB(50.0%)");
    EXPECT_EQ(machine_line({}), "N/A");
    EXPECT_EQ(machine_line({{{}}, {}, {}, {}}), "N/A");
}

TEST(MachineLine, WhatIsNotFiniteCountsAsAbsent) {
    const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
    EXPECT_EQ(machine_line({{{nan, infinite, 2 * kGiB}}, nan, 1 * kGiB, nan}), "RAM: 1.0GB");
    EXPECT_EQ(machine_line({{}, {}, 1 * kGiB, 0.0}), "RAM: 1.0GB");
}

TEST(MachineLine, SeveralGpusAreNumbered) {
    EXPECT_EQ(machine_line({{{7.0, {}, {}}, {}, {93.0, 1 * kGiB, 4 * kGiB}}, {}, {}, {}}),
              "GPU0:  7% | GPU2: 93% | VRAM2: 1.0/4.0GB(25.0%)");
}

TEST(MachineLine, TakesWhatASampleHolds) {
    sense::Sample sample;
    sample.gpus.resize(1);
    sample.gpus[0].utilization = 50;
    sample.cpu.utilization = 12.5;
    sample.memory.used_bytes = 2 * kGiB;
    sample.memory.total_bytes = 8 * kGiB;
    EXPECT_EQ(machine_line(machine_line_values(sample)), "GPU: 50% | CPU: 12.5% | RAM: 2.0/8.0GB(25.0%)");
}

}  // namespace
}  // namespace millrace::record
