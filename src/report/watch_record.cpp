#include "report/watch_record.h"

#include <algorithm>
#include <utility>

namespace millrace::report {
namespace {

std::optional<double> percent_of(const std::optional<double>& part, const std::optional<double>& whole) {
    if (!part || !whole || !(*whole > 0)) return std::nullopt;
    return 100 * *part / *whole;
}

std::optional<double> highest(const std::vector<std::optional<double>>& values) {
    std::optional<double> most;
    for (const std::optional<double>& value : values)
        if (value && (!most || *value > *most)) most = value;
    return most;
}

}  // namespace

WatchRecord::WatchRecord(sense::MachineFacts facts, std::chrono::nanoseconds interval)
    : facts_(std::move(facts)), interval_(interval) {
    traces_.gpus.resize(facts_.gpus.size());
    evidence_.gpus.resize(facts_.gpus.size());
}

void WatchRecord::add(const sense::Sample& sample) {
    summary_.add(sample);
    ticks_ = sample.sequence + 1;
    traces_.ticks = ticks_;
    late_.add(std::chrono::duration<double, std::milli>(sample.late).count());

    const std::optional<double> busiest = highest(sample.cpu.cores);
    if (sample.cpu.utilization) evidence_.cpu_full.add(*sample.cpu.utilization > kWatchPolicy.cpu_full_above);
    if (busiest) evidence_.core_full.add(*busiest > kWatchPolicy.core_full_above);
    traces_.cpu.add(sample.sequence, sample.cpu.utilization);
    traces_.busiest_core.add(sample.sequence, busiest);
    if (sample.cpu.process_utilization && facts_.cores > 0)
        traces_.tree.add(sample.sequence, *sample.cpu.process_utilization / facts_.cores);

    const std::optional<double> memory = percent_of(sample.memory.used_bytes, sample.memory.total_bytes);
    traces_.memory.add(sample.sequence, memory);
    if (memory) evidence_.memory.add(*memory);
    if (const std::optional<double>& swap = sample.memory.swap_used_bytes) {
        if (!evidence_.first_swap) evidence_.first_swap = swap;
        evidence_.peak_swap = std::max(evidence_.peak_swap.value_or(0), *swap);
    }
    for (std::size_t at = 0; at < std::min(evidence_.gpus.size(), sample.gpus.size()); ++at) add_gpu(at, sample, busiest);
}

void WatchRecord::add_gpu(std::size_t index, const sense::Sample& sample, const std::optional<double>& busiest_core) {
    const sense::GpuReading& reading = sample.gpus[index];
    const std::uint64_t tick = sample.sequence;
    GpuEvidence& gpu = evidence_.gpus[index];
    GpuTraces& traces = traces_.gpus[index];
    gpu.lost = gpu.lost || reading.lost;
    const std::optional<double> memory = percent_of(reading.memory_used_bytes, reading.memory_total_bytes);
    const std::optional<double> power = percent_of(reading.power_watts, reading.power_limit_watts);
    if (memory) gpu.memory.add(*memory);
    if (power) gpu.power.add(*power);
    if (reading.energy_joules) {
        if (!gpu.first_energy) gpu.first_energy = sample.time;
        gpu.last_energy = sample.time;
    }
    if (reading.utilization) {
        const bool idle = *reading.utilization < kWatchPolicy.idle_below;
        gpu.idle.add(idle);
        if (busiest_core) gpu.idle_with_full_core.add(idle && *busiest_core > kWatchPolicy.core_full_above);
    }
    traces.utilization.add(tick, reading.utilization);
    traces.sm_active.add(tick, reading.sm_active);
    traces.tensor_active.add(tick, reading.tensor_active);
    traces.dram_active.add(tick, reading.dram_active);
    traces.memory.add(tick, memory);
    traces.power_watts.add(tick, reading.power_watts);
    traces.temperature_celsius.add(tick, reading.temperature_celsius);
}

std::uint64_t WatchRecord::missed() const { return ticks_ - summary_.samples(); }

double WatchRecord::energy_seconds(int gpu) const {
    const GpuEvidence& of = evidence_.gpus.at(static_cast<std::size_t>(gpu));
    return of.first_energy ? std::chrono::duration<double>(*of.last_energy - *of.first_energy).count() : 0;
}

}  // namespace millrace::report
