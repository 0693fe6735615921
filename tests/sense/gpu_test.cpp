#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "mock_machine.h"
#include "sense/nvml_library.h"

namespace millrace::sense {
namespace {

using std::chrono::milliseconds;

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(Gpu, AThreadMayEndAfterTheDriversLibraryWasClosed) {
    bool opened = false;
    std::thread([&] { opened = nvml::Library::open(mock_library(MILLRACE_MOCK_NVML)).ok(); }).join();
    EXPECT_TRUE(opened);
}

TEST(Gpu, FactsComeFromTheDriver) {
    const MockMachine machine({{"MOCK_NVML_GPUS", "2"}});
    ASSERT_EQ(machine.facts().gpus.size(), 2u);
    EXPECT_EQ(machine.facts().no_gpu, "");
    EXPECT_EQ(machine.facts().driver, "580.00.mock");
    const GpuFacts& second = machine.facts().gpus[1];
    EXPECT_EQ(second.index, 1);
    EXPECT_EQ(second.driver_index, 1);
    EXPECT_EQ(second.name, "Mock GPU 1");
    EXPECT_EQ(second.pci_bus, "00000000:07:00.0");
    EXPECT_TRUE(second.uuid.starts_with("GPU-7089")) << second.uuid;
    EXPECT_EQ(second.memory_total_bytes, 80 * kGiB);
    EXPECT_EQ(second.power_limit_watts, 700.0);
    EXPECT_TRUE(second.has_activity);
}

TEST(Gpu, EveryReadingHasItsValueAndUnit) {
    MockMachine machine({{"MOCK_NVML_GPUS", "2"}});
    machine.read(milliseconds(0));
    const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(1);
    EXPECT_FALSE(gpu.lost);
    EXPECT_EQ(gpu.utilization, 54.0);
    EXPECT_EQ(gpu.memory_utilization, 25.0);
    EXPECT_EQ(gpu.memory_used_bytes, 3 * kGiB) << "without the reserved part";
    EXPECT_EQ(gpu.memory_total_bytes, 80 * kGiB);
    EXPECT_DOUBLE_EQ(gpu.power_watts.value_or(-1), 302);
    EXPECT_EQ(gpu.power_limit_watts, 700.0);
    EXPECT_FALSE(gpu.power_implausible);
    EXPECT_DOUBLE_EQ(gpu.energy_joules.value_or(-1), 600);
    EXPECT_EQ(gpu.sm_clock_mhz, 1950.0);
    EXPECT_EQ(gpu.memory_clock_mhz, 2619.0);
    EXPECT_EQ(gpu.temperature_celsius, 47.0);
    EXPECT_EQ(gpu.throttle, kThrottleThermal) << "the general hardware bit is explained by the heat";
    EXPECT_FALSE(gpu.process_memory_bytes) << "no process of the tree is on it";
}

TEST(Gpu, TheLinkIsWhatGenerationAndLanesAllow) {
    const auto link = [](MockMachine::Settings settings, const char* library = MILLRACE_MOCK_NVML) {
        MockMachine machine(settings, {}, library);
        const auto told = machine.read(milliseconds(0)).gpus.at(0).link_bytes_per_second;
        EXPECT_EQ(told, machine.facts().gpus.at(0).link_bytes_per_second);
        return told.value_or(-1);
    };
    EXPECT_NEAR(link({}), 63.0e9, 0.1e9) << "an idle link's generation of now says nothing";
    EXPECT_NEAR(link({}, MILLRACE_MOCK_NVML_OLD), 63.0e9, 0.1e9);
    EXPECT_NEAR(link({{"MOCK_NVML_PCIE", "4:1:16:8"}}), 15.75e9, 0.1e9) << "half of the lanes are connected";
    EXPECT_NEAR(link({{"MOCK_NVML_PCIE", "2:2:4:4"}}), 2e9, 1);
    EXPECT_NEAR(link({{"MOCK_NVML_PCIE", "3:1:16:0"}}), 15.75e9, 0.1e9);
    EXPECT_EQ(link({{"MOCK_NVML_PCIE", "99:1:16:16"}}), -1);
    EXPECT_EQ(link({{"MOCK_NVML_PCIE", "5:5:1000:1000"}}), -1);
    EXPECT_NEAR(link({{"MOCK_NVML_FAIL", "nvmlDeviceGetMaxPcieLinkGeneration=3"}, {"MOCK_NVML_PCIE", "5:4:16:16"}}), 31.5e9,
                0.1e9);
    EXPECT_NEAR(link({{"MOCK_NVML_FAIL", "nvmlDeviceGetCurrPcieLinkWidth=3"}, {"MOCK_NVML_PCIE", "5:4:8:16"}}), 31.5e9, 0.1e9);
    EXPECT_EQ(link({{"MOCK_NVML_FAIL", "nvmlDeviceGetMaxPcieLinkGeneration=3,nvmlDeviceGetCurrPcieLinkGeneration=3"}}), -1);
    EXPECT_EQ(link({{"MOCK_NVML_FAIL", "nvmlDeviceGetMaxPcieLinkWidth=3,nvmlDeviceGetCurrPcieLinkWidth=999"}}), -1);
    EXPECT_DOUBLE_EQ(link({{"MOCK_NVML_C2C", "11:44712"}}), 447.12e9) << "the eleventh link is down";
    EXPECT_NEAR(link({{"MOCK_NVML_C2C", "1:44712"}}), 63.0e9, 0.1e9) << "no C2C link is up";
    EXPECT_NEAR(link({{"MOCK_NVML_C2C", "11:44712"}, {"MOCK_NVML_FAIL", "nvmlDeviceGetFieldValues=3"}}), 63.0e9, 0.1e9);
}

TEST(Gpu, ActivityNeedsTwoReadings) {
    MockMachine machine({});
    EXPECT_FALSE(machine.read(milliseconds(0)).gpus.at(0).sm_active);
    const GpuReading gpu = machine.read(milliseconds(100)).gpus.at(0);
    EXPECT_DOUBLE_EQ(gpu.graphics_active.value_or(-1), 20.01);
    EXPECT_DOUBLE_EQ(gpu.sm_active.value_or(-1), 20.02);
    EXPECT_DOUBLE_EQ(gpu.sm_occupancy.value_or(-1), 20.03);
    EXPECT_DOUBLE_EQ(gpu.tensor_active.value_or(-1), 20.05);
    EXPECT_DOUBLE_EQ(gpu.dram_active.value_or(-1), 20.10);
    EXPECT_DOUBLE_EQ(gpu.fp32_active.value_or(-1), 20.12);
    EXPECT_DOUBLE_EQ(gpu.fp16_active.value_or(-1), 20.13);
    EXPECT_DOUBLE_EQ(gpu.pcie_write_bytes_per_second.value_or(-1), 20.0 * 1024 * 1024);
    EXPECT_DOUBLE_EQ(gpu.pcie_read_bytes_per_second.value_or(-1), 21.0 * 1024 * 1024);
    EXPECT_FALSE(machine.read(milliseconds(120)).gpus.at(0).sm_active) << "too soon for the counters to have moved";
    EXPECT_TRUE(machine.read(milliseconds(200)).gpus.at(0).sm_active);
    EXPECT_EQ(machine.calls("nvmlDeviceGetPcieThroughput"), 0u) << "it blocks, and is not needed";
    for (int i = 3; i < 20; ++i) machine.read(milliseconds(100 * i));
    EXPECT_EQ(machine.read(milliseconds(2000)).gpus.at(0).sm_active, 100.0) << "a hair above is 100";
    EXPECT_EQ(machine.live_samples(), 2u);
    machine.close();
    EXPECT_EQ(machine.live_samples(), 0u);
    EXPECT_EQ(machine.calls("nvmlShutdown"), 1u);
}

TEST(Gpu, OneActivityMetricMayFailAlone) {
    MockMachine machine({{"MOCK_NVML_GPM_FAIL", "5=3,20=3,21=3"}});
    machine.read(milliseconds(0));
    const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(0);
    EXPECT_FALSE(gpu.tensor_active);
    EXPECT_TRUE(gpu.sm_active && gpu.dram_active);
    EXPECT_EQ(gpu.pcie_read_bytes_per_second, 5e6) << "the other way of measuring";
}

TEST(Gpu, WithoutActivityCountersTheBlockingMeasurementRunsAtSlowIntervalsOnly) {
    MockMachine machine({{"MOCK_NVML_GPM", "0"}, {"MOCK_NVML_GPUS", "2"}});
    EXPECT_FALSE(machine.facts().gpus[0].has_activity);
    machine.read(milliseconds(0));
    EXPECT_FALSE(machine.read(milliseconds(900)).gpus.at(0).pcie_read_bytes_per_second) << "two GPUs would block for 80 ms";
    EXPECT_EQ(machine.calls("nvmlDeviceGetPcieThroughput"), 0u);
    const GpuReading gpu = machine.read(milliseconds(1900)).gpus.at(0);
    EXPECT_EQ(gpu.pcie_read_bytes_per_second, 5e6);
    EXPECT_EQ(gpu.pcie_write_bytes_per_second, 2e6);
    EXPECT_FALSE(gpu.sm_active);
}

TEST(Gpu, SingleFailuresMakeSingleValuesAbsent) {
    const std::pair<const char*, std::optional<double> GpuReading::*> cases[] = {
        {"nvmlDeviceGetPowerUsage=4", &GpuReading::power_watts},
        {"nvmlDeviceGetEnforcedPowerLimit=3", &GpuReading::power_limit_watts},
        {"nvmlDeviceGetTotalEnergyConsumption=3", &GpuReading::energy_joules},
        {"nvmlDeviceGetTemperatureV=3,nvmlDeviceGetTemperature=10", &GpuReading::temperature_celsius},
        {"nvmlDeviceGetUtilizationRates=3", &GpuReading::utilization},
        {"nvmlDeviceGetClockInfo=999", &GpuReading::sm_clock_mhz},
        {"nvmlDeviceGetMemoryInfo_v2=3,nvmlDeviceGetMemoryInfo=3", &GpuReading::memory_used_bytes},
        {"nvmlGpmSampleGet=10", &GpuReading::sm_active},
        {"nvmlGpmMetricsGet=21", &GpuReading::sm_active},
    };
    for (const auto& [failing, member] : cases) {
        MockMachine machine({{"MOCK_NVML_FAIL", failing}});
        machine.read(milliseconds(0));
        const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(0);
        EXPECT_FALSE(gpu.lost) << failing;
        EXPECT_FALSE((gpu.*member).has_value()) << failing;
        int present = 0;
        for (const auto other : {&GpuReading::power_watts, &GpuReading::power_limit_watts, &GpuReading::energy_joules,
                                 &GpuReading::temperature_celsius, &GpuReading::utilization, &GpuReading::sm_clock_mhz,
                                 &GpuReading::memory_used_bytes, &GpuReading::sm_active})
            present += (gpu.*other).has_value() ? 1 : 0;
        EXPECT_EQ(present, 7) << failing;
    }
}

TEST(Gpu, NewerCallsFallBackToOlderOnes) {
    MockMachine machine({{"MOCK_NVML_FAIL",
                          "nvmlDeviceGetMemoryInfo_v2=13,nvmlDeviceGetTemperatureV=25,nvmlDeviceGetCurrentClocksEventReasons=13,"
                          "nvmlDeviceGetComputeRunningProcesses_v3=13"},
                         {"MOCK_NVML_PROCESSES", "self:4096"}});
    const GpuReading gpu = machine.read(milliseconds(0)).gpus.at(0);
    EXPECT_EQ(gpu.memory_used_bytes, 2 * kGiB) << "the old call counts the reserved part";
    EXPECT_EQ(gpu.temperature_celsius, 46.0);
    EXPECT_EQ(gpu.throttle, kThrottlePowerCap);
    EXPECT_EQ(gpu.process_memory_bytes, 4096.0);
}

TEST(Gpu, AnOldDriverLacksFunctionsAndNothingElse) {
    MockMachine machine({}, {}, MILLRACE_MOCK_NVML_OLD);
    ASSERT_EQ(machine.facts().gpus.size(), 1u);
    EXPECT_FALSE(machine.facts().gpus[0].has_activity);
    machine.read(milliseconds(0));
    const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(0);
    EXPECT_TRUE(gpu.memory_used_bytes && gpu.temperature_celsius && gpu.throttle && gpu.pcie_read_bytes_per_second);
    EXPECT_FALSE(gpu.sm_active);
}

TEST(Gpu, ImplausiblePowerIsMarkedAndKeptApart) {
    MockMachine machine({{"MOCK_NVML_POWER", "1400001"}});
    EXPECT_TRUE(machine.read(milliseconds(0)).gpus.at(0).power_watts);
    const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(0);
    EXPECT_TRUE(gpu.power_implausible);
    EXPECT_FALSE(gpu.power_watts);
    EXPECT_DOUBLE_EQ(gpu.implausible_power_watts.value_or(-1), 1400.001);
    machine.close();
    MockMachine edge({{"MOCK_NVML_POWER", "1400000"}});
    edge.read(milliseconds(0));
    EXPECT_DOUBLE_EQ(edge.read(milliseconds(1000)).gpus.at(0).power_watts.value_or(-1), 1400);
}

TEST(Gpu, ALostOneIsAskedNothingMoreWhileOthersGoOn) {
    MockMachine machine({{"MOCK_NVML_GPUS", "3"}, {"MOCK_NVML_LOST", "1:2:15"}});
    EXPECT_FALSE(machine.read(milliseconds(0)).gpus.at(1).lost);
    for (int i = 1; i < 5; ++i) {
        const Sample& sample = machine.read(milliseconds(1000 * i));
        ASSERT_EQ(sample.gpus.size(), 3u);
        EXPECT_TRUE(sample.gpus[1].lost);
        EXPECT_FALSE(sample.gpus[1].memory_total_bytes || sample.gpus[1].power_watts || sample.gpus[1].utilization);
        EXPECT_FALSE(sample.gpus[0].lost || sample.gpus[2].lost);
        EXPECT_TRUE(sample.gpus[0].power_watts && sample.gpus[2].sm_active);
    }
    EXPECT_EQ(machine.calls("nvmlDeviceGetUtilizationRates@1"), 2u);
    EXPECT_EQ(machine.calls("nvmlDeviceGetPowerUsage@1"), 1u);
}

TEST(Gpu, OneThatAnswersUnknownToEverythingIsLost) {
    for (const char* lost : {"0:2:999", "0:2:6"}) {
        MockMachine machine({{"MOCK_NVML_LOST", lost}});
        EXPECT_FALSE(machine.read(milliseconds(0)).gpus.at(0).lost);
        EXPECT_TRUE(machine.read(milliseconds(1000)).gpus.at(0).lost) << lost;
        const unsigned calls = machine.calls("nvmlDeviceGetPowerUsage");
        EXPECT_TRUE(machine.read(milliseconds(2000)).gpus.at(0).lost) << lost;
        EXPECT_EQ(machine.calls("nvmlDeviceGetPowerUsage"), calls);
    }
}

TEST(Gpu, OneThatTimesOutIsNotLost) {
    MockMachine machine({{"MOCK_NVML_LOST", "0:2:10"}});
    machine.read(milliseconds(0));
    const GpuReading gpu = machine.read(milliseconds(1000)).gpus.at(0);
    EXPECT_FALSE(gpu.lost || gpu.utilization || gpu.memory_total_bytes);
}

TEST(Gpu, MemoryOfTheWatchedTreeIsSummedOverItsProcesses) {
    std::string processes = "1:7,self:1000,self:500";
    for (int i = 0; i < 150; ++i) processes += ",1:1";  // more than the first buffer holds
    MockMachine machine({{"MOCK_NVML_PROCESSES", processes.c_str()}});
    EXPECT_EQ(machine.read(milliseconds(0)).gpus.at(0).process_memory_bytes, 1500.0);
    machine.close();
    MockMachine unknown({{"MOCK_NVML_PROCESSES", "self:18446744073709551615"}});
    EXPECT_FALSE(unknown.read(milliseconds(0)).gpus.at(0).process_memory_bytes);
}

TEST(Machine, VisibleDevicesChooseAndNumberTheGpus) {
    MachineOptions options;
    options.visible_devices_set = true;
    options.visible_devices = "2,GPU-70890000";
    MockMachine machine({{"MOCK_NVML_GPUS", "4"}}, options);
    ASSERT_EQ(machine.facts().gpus.size(), 2u);
    EXPECT_EQ(machine.facts().gpus[0].driver_index, 2);
    EXPECT_EQ(machine.facts().gpus[0].index, 0);
    EXPECT_EQ(machine.facts().gpus[1].driver_index, 0);
    EXPECT_EQ(machine.read(milliseconds(0)).gpus.size(), 2u);
    machine.close();
    options.visible_devices = "MIG-11111111-2222-3333-4444-555555555555,77";
    const MockMachine mig({{"MOCK_NVML_GPUS", "4"}}, options);
    ASSERT_EQ(mig.facts().gpus.size(), 1u);
    EXPECT_EQ(mig.facts().gpus[0].driver_index, 3);
    EXPECT_NE(mig.facts().gpu_note.find("77"), std::string::npos);
}

TEST(Machine, SaysWhyThereIsNoGpu) {
    MachineOptions options;
    options.visible_devices_set = true;
    EXPECT_EQ(MockMachine({}, options).facts().no_gpu, "CUDA_VISIBLE_DEVICES is empty, which hides every GPU");
    EXPECT_EQ(MockMachine({{"MOCK_NVML_GPUS", "0"}}).facts().no_gpu, "the driver knows no GPU");
    EXPECT_EQ(MockMachine({{"MOCK_NVML_INIT", "9"}}).facts().no_gpu, "the driver does not answer (NVML: Driver Not Loaded)");
    EXPECT_EQ(MockMachine({{"MOCK_NVML_FAIL", "nvmlDeviceGetHandleByIndex_v2=15"}}).facts().no_gpu, "GPU 0 cannot be opened");
    MachineOptions nowhere;
    nowhere.nvml = "libnvidia-ml-that-is-not-there.so";
    EXPECT_EQ(open_machine(nowhere)->facts().no_gpu, "no driver (libnvidia-ml-that-is-not-there.so not found)");
    nowhere.nvml = "libc.so.6";
    EXPECT_EQ(open_machine(nowhere)->facts().no_gpu, "libc.so.6 is not an NVML library");
}

TEST(Machine, OptionsComeFromTheEnvironment) {
    const char* saved = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string before = saved != nullptr ? saved : "";
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("MILLRACE_NVML");
    EXPECT_FALSE(machine_options().visible_devices_set);
    EXPECT_EQ(machine_options().nvml, "libnvidia-ml.so.1");
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    EXPECT_TRUE(machine_options().visible_devices_set);
    ::setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    ::setenv("MILLRACE_NVML", "/a/library.so", 1);
    EXPECT_EQ(machine_options().visible_devices, "1,0");
    EXPECT_EQ(machine_options().nvml, "/a/library.so");
    ::unsetenv("MILLRACE_NVML");
    if (saved != nullptr)
        ::setenv("CUDA_VISIBLE_DEVICES", before.c_str(), 1);
    else
        ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace millrace::sense
