#include "sense/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "recorded_tree.h"

namespace millrace::sense {
namespace {

TEST(Machine, OfThisTestHasCoresAndMemoryAndAProcess) {
    MachineOptions options;
    options.nvml = "";
    const std::unique_ptr<Source> machine = open_machine(options);
    EXPECT_GT(machine->facts().cores, 0);
    EXPECT_EQ(machine->facts().core_numbers.size(), static_cast<std::size_t>(machine->facts().cores));
    EXPECT_FALSE(machine->facts().no_gpu.empty());
    Sample sample;
    machine->read(std::chrono::seconds(1), sample);
    EXPECT_FALSE(sample.cpu.utilization.has_value()) << "a rate needs two readings";
    ASSERT_TRUE(sample.memory.total_bytes && sample.memory.used_bytes);
    EXPECT_GT(*sample.memory.used_bytes, 0.0);
    EXPECT_LE(*sample.memory.used_bytes, *sample.memory.total_bytes);
    ASSERT_TRUE(sample.process.count && sample.memory.process_bytes);
    EXPECT_GE(*sample.process.count, 1.0);
    EXPECT_GT(*sample.memory.process_bytes, 0.0);
    machine->read(std::chrono::seconds(2), sample);
    EXPECT_TRUE(sample.cpu.process_utilization.has_value());
    EXPECT_GE(sample.cpu.process_utilization.value_or(-1), 0.0);
}

TEST(Machine, RecordedOneFillsEveryReading) {
    const RecordedTree files("workstation");
    MachineOptions options;
    options.proc = files.proc();
    options.sys = files.sys();
    options.nvml = "";
    options.root = 100;
    const std::unique_ptr<Source> machine = open_machine(options);
    EXPECT_EQ(machine->facts().cpu_name, "AMD EPYC 7B13");
    EXPECT_EQ(machine->facts().host, "workbench");
    EXPECT_EQ(machine->facts().core_numbers, (std::vector<int>{0, 1, 3}));
    EXPECT_EQ(machine->facts().no_gpu, "GPUs are not looked for");
    Sample sample;
    sample.gpus.resize(3);
    sample.cpu.process_utilization = 7;
    machine->read(std::chrono::seconds(1), sample);
    EXPECT_TRUE(sample.gpus.empty()) << "nothing of an older sample may stay";
    EXPECT_FALSE(sample.cpu.process_utilization);
    EXPECT_EQ(sample.process.count, 2.0);
    EXPECT_EQ(sample.cpu.load_1m, 1.25);
    EXPECT_TRUE(sample.memory.used_bytes);
}

TEST(Machine, OfARealGpuAnswersSensibly) {
    const std::unique_ptr<Source> machine = open_machine(machine_options());
    if (machine->facts().gpus.empty()) GTEST_SKIP() << machine->facts().no_gpu;
    Sample sample;
    machine->read(std::chrono::seconds(1), sample);
    for (const GpuReading& gpu : sample.gpus) {
        EXPECT_FALSE(gpu.lost);
        ASSERT_TRUE(gpu.memory_used_bytes && gpu.memory_total_bytes && gpu.temperature_celsius);
        EXPECT_LT(*gpu.memory_used_bytes, *gpu.memory_total_bytes);
        EXPECT_GT(*gpu.temperature_celsius, 5.0);
        EXPECT_LT(*gpu.temperature_celsius, 120.0);
    }
}

}  // namespace
}  // namespace millrace::sense
