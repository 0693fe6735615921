#pragma once
// Machines and samples that never were.

#include <string>

#include "report/watch_record.h"

namespace millrace::report {

inline constexpr double kGiB = 1024.0 * 1024 * 1024;

inline sense::MachineFacts made_up_facts(std::size_t gpus, bool has_activity = true) {
    sense::MachineFacts facts;
    facts.host = "mill";
    facts.cpu_name = "Some CPU";
    facts.cores = 4;
    facts.core_numbers = {0, 1, 2, 3};
    for (std::size_t at = 0; at < gpus; ++at) {
        sense::GpuFacts gpu;
        gpu.index = gpu.driver_index = static_cast<int>(at);
        gpu.name = "Some GPU";
        gpu.memory_total_bytes = 24 * kGiB;
        gpu.power_limit_watts = 300;
        gpu.has_activity = has_activity;
        facts.gpus.push_back(gpu);
    }
    if (gpus == 0) facts.no_gpu = "no driver";
    return facts;
}

/// Number `tick` at one sample a second.
inline sense::Sample made_up_sample(std::uint64_t tick, std::size_t gpus = 0) {
    sense::Sample sample;
    sample.sequence = tick;
    sample.time = std::chrono::seconds{tick};
    sample.wall = 1.7e9 + static_cast<double>(tick);
    sample.late = std::chrono::microseconds{100};
    sample.cpu.utilization = 20;
    sample.cpu.cores = {10.0, 20.0, 30.0, 20.0};
    sample.cpu.load_1m = 0.5;
    sample.memory.total_bytes = 64 * kGiB;
    sample.memory.used_bytes = 16 * kGiB;
    sample.memory.swap_total_bytes = 8 * kGiB;
    sample.memory.swap_used_bytes = 0;
    sample.gpus.resize(gpus);
    for (sense::GpuReading& gpu : sample.gpus) {
        gpu.utilization = 95;
        gpu.memory_used_bytes = 6 * kGiB;
        gpu.memory_total_bytes = 24 * kGiB;
        gpu.power_watts = 150;
        gpu.power_limit_watts = 300;
        gpu.energy_joules = 1e6 + 150.0 * static_cast<double>(tick);
        gpu.temperature_celsius = 60;
        gpu.sm_clock_mhz = 1500;
        gpu.memory_clock_mhz = 2000;
        gpu.throttle = 0;
    }
    return sample;
}

/// Twenty samples, each changed by `change`.
template <class Change>
WatchRecord made_up_record(std::size_t gpus, const Change& change, bool has_activity = true, std::uint64_t samples = 20) {
    WatchRecord record(made_up_facts(gpus, has_activity), std::chrono::seconds{1});
    for (std::uint64_t tick = 0; tick < samples; ++tick) {
        sense::Sample sample = made_up_sample(tick, gpus);
        change(sample);
        record.add(sample);
    }
    return record;
}

}  // namespace millrace::report
