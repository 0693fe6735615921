#include "sense/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

}  // namespace
}  // namespace millrace::sense
