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

std::optional<record::Statistics> statistics_of(const record::Series& series) {
    return series.empty() ? std::nullopt : std::optional(series.statistics());
}

}  // namespace

WatchRecord::WatchRecord(sense::MachineFacts facts, std::chrono::nanoseconds interval, const Policy& policy)
    : facts_(std::move(facts)), interval_(interval), policy_(policy) {
    traces_.gpus.resize(facts_.gpus.size());
    gpus_.resize(facts_.gpus.size());
}

void WatchRecord::add(const sense::Sample& sample) {
    summary_.add(sample);
    ticks_ = sample.sequence + 1;
    traces_.ticks = ticks_;
    late_.add(std::chrono::duration<double, std::milli>(sample.late).count());

    const std::optional<double> busiest = highest(sample.cpu.cores);
    if (sample.cpu.utilization) cpu_full_.add(*sample.cpu.utilization > policy_.cpu_full_above);
    if (busiest) core_full_.add(*busiest > policy_.core_full_above);
    traces_.cpu.add(sample.sequence, sample.cpu.utilization);
    traces_.busiest_core.add(sample.sequence, busiest);
    if (sample.cpu.process_utilization && facts_.cores > 0)
        traces_.tree.add(sample.sequence, *sample.cpu.process_utilization / facts_.cores);

    const std::optional<double> memory = percent_of(sample.memory.used_bytes, sample.memory.total_bytes);
    traces_.memory.add(sample.sequence, memory);
    if (memory) memory_.add(*memory);
    if (const std::optional<double>& swap = sample.memory.swap_used_bytes) {
        if (!first_swap_) first_swap_ = swap;
        peak_swap_ = std::max(peak_swap_.value_or(0), *swap);
    }
    for (std::size_t at = 0; at < std::min(gpus_.size(), sample.gpus.size()); ++at) add_gpu(at, sample, busiest);
}

void WatchRecord::add_gpu(std::size_t index, const sense::Sample& sample, const std::optional<double>& busiest_core) {
    const sense::GpuReading& reading = sample.gpus[index];
    const std::uint64_t tick = sample.sequence;
    Gpu& gpu = gpus_[index];
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
        const bool idle = *reading.utilization < policy_.idle_below;
        gpu.idle.add(idle);
        if (busiest_core) gpu.idle_with_full_core.add(idle && *busiest_core > policy_.core_full_above);
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
    const Gpu& of = gpus_.at(static_cast<std::size_t>(gpu));
    return of.first_energy ? std::chrono::duration<double>(*of.last_energy - *of.first_energy).count() : 0;
}

Evidence WatchRecord::evidence() const {
    Evidence found;
    found.samples = summary_.samples();
    found.missed = missed();
    found.seconds = summary_.seconds();
    found.no_gpu = facts_.no_gpu;
    found.cores = facts_.cores;
    for (std::size_t at = 0; at < gpus_.size(); ++at) {
        const Gpu& gpu = gpus_[at];
        const int index = static_cast<int>(at);
        GpuEvidence of;
        of.index = index;
        of.name = facts_.gpus[at].name;
        of.has_activity = facts_.gpus[at].has_activity;
        of.lost = gpu.lost;
        of.utilization = summary_.of("gpu/utilization_percent", index);
        of.sm_active = summary_.of("gpu/sm_active_percent", index);
        of.tensor_active = summary_.of("gpu/tensor_active_percent", index);
        of.fp32_active = summary_.of("gpu/fp32_active_percent", index);
        of.fp16_active = summary_.of("gpu/fp16_active_percent", index);
        of.dram_active = summary_.of("gpu/dram_active_percent", index);
        of.power_percent = statistics_of(gpu.power);
        of.memory_percent = statistics_of(gpu.memory);
        of.idle_share = gpu.idle.value();
        of.idle_with_full_core_share = gpu.idle_with_full_core.value();
        of.throttled_share = summary_.throttled_share(index);
        of.throttle = summary_.throttled(index);
        of.implausible_power = summary_.implausible_power(index);
        found.gpus.push_back(std::move(of));
    }
    found.cpu = summary_.of("cpu/utilization_percent");
    found.tree = summary_.of("cpu/process_utilization_percent");
    found.quota_throttled = summary_.of("cpu/throttled_percent");
    if (const auto limit = summary_.of("cpu/limit_cores")) found.limit_cores = limit->maximum;
    found.cpu_full_share = cpu_full_.value();
    found.core_full_share = core_full_.value();
    found.memory_percent = statistics_of(memory_);
    found.first_swap_bytes = first_swap_;
    found.peak_swap_bytes = peak_swap_;
    return found;
}

}  // namespace millrace::report
