#include "report/watch_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "sense/sample.h"

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

using Statistics = std::optional<record::Statistics>;

Statistics statistics_of(const record::Series& series) { return series.empty() ? std::nullopt : Statistics(series.statistics()); }

/// What is known of one GPU.
struct WatchedGpu {
    Statistics percent(const char* name) const { return record.summary().of(fmt::format("gpu/{}_percent", name), index); }

    const WatchRecord& record;
    int index;
    const WatchRecord::GpuEvidence& kept = record.evidence().gpus[static_cast<std::size_t>(index)];
    Statistics utilization = percent("utilization"), sm_active = percent("sm_active"), tensor_active = percent("tensor_active");
    Statistics fp32_active = percent("fp32_active"), fp16_active = percent("fp16_active"), dram_active = percent("dram_active");
    Statistics power_percent = statistics_of(kept.power), memory_percent = statistics_of(kept.memory);
};

std::string mean_text(const char* name, const Statistics& statistics) {
    return statistics ? fmt::format("{} {:.0f} %", name, statistics->mean) : fmt::format("{} -", name);
}

/// "utilisation 96 %, SM active 12 %, tensor active 1 %, DRAM active 3 % on average"
std::string activity_text(const WatchedGpu& gpu) {
    std::string text = mean_text("utilisation", gpu.utilization);
    if (gpu.sm_active) text += ", " + mean_text("SM active", gpu.sm_active);
    if (gpu.tensor_active) text += ", " + mean_text("tensor active", gpu.tensor_active);
    if (gpu.fp32_active) text += ", " + mean_text("fp32 active", gpu.fp32_active);
    if (gpu.dram_active) text += ", " + mean_text("DRAM active", gpu.dram_active);
    text += " on average";
    if (gpu.power_percent) text += fmt::format("; power {:.0f} % of its limit", gpu.power_percent->mean);
    return text;
}

/// The arithmetic pipe that worked most, and its name.
std::pair<double, const char*> busiest_pipe(const WatchedGpu& gpu) {
    std::pair<double, const char*> busiest{-1, "none"};
    for (const auto& [statistics, name] :
         {std::pair{&gpu.tensor_active, "tensor"}, std::pair{&gpu.fp32_active, "fp32"}, std::pair{&gpu.fp16_active, "fp16"}})
        if (*statistics && (*statistics)->mean > busiest.first) busiest = {(*statistics)->mean, name};
    return busiest;
}

/// The judgement of one evidence, finding by finding.
class Judge {
public:
    explicit Judge(const WatchRecord& record) : record_(record) {}

    std::vector<Finding> judge() {
        const bool enough = record_.summary().samples() >= kWatchPolicy.fewest_samples;
        if (!enough)
            add("too_few_samples", Severity::kInfo, -1, "too few samples to judge how busy anything was",
                fmt::format("{} taken, {} needed; a longer watch or a shorter interval gives them", record_.summary().samples(),
                            kWatchPolicy.fewest_samples));
        for (std::size_t at = 0; at < record_.evidence().gpus.size(); ++at) {
            const WatchedGpu gpu{record_, static_cast<int>(at)};
            if (enough) activity(gpu);
            facts(gpu);
        }
        if (record_.evidence().gpus.empty())
            add("no_gpu", Severity::kInfo, -1, "no GPU was watched: this judges the CPU alone",
                record_.facts().no_gpu.empty() ? "none is visible" : record_.facts().no_gpu);
        if (enough) processor();
        memory();
        return std::move(findings_);
    }

private:
    void add(const char* kind, Severity severity, int gpu, std::string text, std::string evidence) {
        findings_.push_back({kind, severity, gpu, std::move(text), std::move(evidence)});
    }

    /// One finding: how busy the GPU was, as far as its counters tell.
    void activity(const WatchedGpu& gpu) {
        if (!gpu.utilization && !gpu.sm_active)
            return add("gpu_unread", Severity::kInfo, gpu.index, "neither utilisation nor activity could be read",
                       gpu.kept.lost ? "the GPU was lost" : "the driver gave no figure");
        if (idle(gpu)) return;
        if (gpu.sm_active)
            counted(gpu);
        else
            uncounted(gpu);
        if (gpu.utilization && gpu.utilization->p95 > kWatchPolicy.fluctuates_above &&
            gpu.utilization->p5 < kWatchPolicy.idle_below)
            add("gpu_fluctuates", Severity::kInfo, gpu.index, "work comes and goes: busy stretches alternate with idle ones",
                fmt::format("utilisation p5 {:.0f} %, p95 {:.0f} %", gpu.utilization->p5, gpu.utilization->p95));
    }

    bool idle(const WatchedGpu& gpu) {
        const bool unused = (!gpu.utilization || gpu.utilization->maximum <= 0) && (!gpu.sm_active || gpu.sm_active->maximum < 1);
        if (unused) {
            add("gpu_unused", Severity::kWarning, gpu.index, "the GPU was not used at all", activity_text(gpu));
            return true;
        }
        if (!gpu.kept.idle.is_most()) return false;
        const std::string share = fmt::format("below {:.0f} % utilisation in {:.0f} % of the samples; {}",
                                              kWatchPolicy.idle_below, 100 * gpu.kept.idle.value(), activity_text(gpu));
        add("gpu_idle", Severity::kWarning, gpu.index, "idle most of the time: no kernel was resident", share);
        if (gpu.kept.idle_with_full_core.is_most())
            add("cpu_holds_gpu", Severity::kWarning, gpu.index, "a CPU core is full while the GPU idles: the host is the limit",
                fmt::format("in {:.0f} % of the samples a core was above {:.0f} % while the GPU was below {:.0f} %",
                            100 * gpu.kept.idle_with_full_core.value(), kWatchPolicy.core_full_above, kWatchPolicy.idle_below));
        return true;
    }

    /// With activity counters.
    void counted(const WatchedGpu& gpu) {
        const double sm = gpu.sm_active->mean;
        if (sm < kWatchPolicy.sm_low) {
            if (gpu.utilization && gpu.utilization->mean >= kWatchPolicy.utilization_low)
                return add("resident_not_busy", Severity::kWarning, gpu.index,
                           "a kernel was resident but the chip was hardly busy: kernels too small for the chip, or time between "
                           "launches; a timeline of one step tells which",
                           activity_text(gpu));
            return add("gpu_partly_used", Severity::kWarning, gpu.index,
                       "partly used: no kernel was resident for much of the time, and the chip was not full when one was",
                       activity_text(gpu));
        }
        const auto [pipe, name] = busiest_pipe(gpu);
        if (gpu.dram_active && gpu.dram_active->mean >= kWatchPolicy.dram_busy && gpu.dram_active->mean > pipe)
            return add("memory_bound", Severity::kInfo, gpu.index, "busy, and bound by device memory", activity_text(gpu));
        if (pipe >= kWatchPolicy.pipe_busy)
            return add("busy_arithmetic", Severity::kInfo, gpu.index, fmt::format("busy with arithmetic ({} pipes)", name),
                       activity_text(gpu));
        add("busy_waiting", Severity::kInfo, gpu.index,
            sm >= kWatchPolicy.sm_good
                ? "multiprocessors are occupied, yet neither arithmetic nor memory is near its limit: kernels wait"
                : "moderately busy: neither the multiprocessors nor arithmetic nor memory are near their limit",
            activity_text(gpu));
    }

    /// Utilisation alone: it proves idleness, it cannot prove work.
    void uncounted(const WatchedGpu& gpu) {
        const double utilization = gpu.utilization->mean;
        if (utilization < kWatchPolicy.utilization_low)
            return add("gpu_partly_used", Severity::kWarning, gpu.index,
                       "low utilisation: no kernel was resident for much of the time", activity_text(gpu));
        add("utilization_only", Severity::kInfo, gpu.index,
            fmt::format("a kernel was resident {} of the time; whether the chip was busy, utilisation alone cannot tell",
                        utilization >= kWatchPolicy.utilization_good ? "nearly all" : "most"),
            activity_text(gpu) + (record_.facts().gpus[static_cast<std::size_t>(gpu.index)].has_activity
                                      ? "; the activity counters gave nothing"
                                      : "; this GPU has no activity counters (GPM)"));
    }

    /// What needs no statistics.
    void facts(const WatchedGpu& gpu) {
        const double throttled = record_.summary().throttled_share(gpu.index);
        if (throttled > kWatchPolicy.throttled_share)
            add("gpu_throttled", Severity::kWarning, gpu.index,
                "ran below its clocks: " + sense::throttle_text(record_.summary().throttled(gpu.index)),
                fmt::format("in {:.0f} % of the samples", 100 * throttled));
        if (gpu.memory_percent && gpu.memory_percent->maximum > kWatchPolicy.memory_edge)
            add("gpu_memory_edge", Severity::kWarning, gpu.index, "device memory near the edge",
                fmt::format("peak {:.1f} % of the total", gpu.memory_percent->maximum));
        if (const std::uint64_t readings = record_.summary().implausible_power(gpu.index); readings > 0)
            add("power_implausible", Severity::kInfo, gpu.index, "the driver reported power the GPU cannot draw; left out",
                fmt::format("{} readings beyond twice the limit", readings));
        if (gpu.kept.lost)
            add("gpu_lost", Severity::kWarning, gpu.index, "the GPU stopped answering while it was watched",
                "its figures end there; the system log may hold an Xid message");
    }

    void processor() {
        const Statistics cpu = record_.summary().of("cpu/utilization_percent");
        const Statistics tree = record_.summary().of("cpu/process_utilization_percent");
        const Statistics throttled = record_.summary().of("cpu/throttled_percent"),
                         limit = record_.summary().of("cpu/limit_cores");
        const int cores = record_.facts().cores;
        const auto &full = record_.evidence().cpu_full, &core = record_.evidence().core_full;
        if (!cpu) return add("cpu_unread", Severity::kInfo, -1, "the CPU's load could not be read", "no figure");
        std::string mean =
            fmt::format("CPU {:.0f} % of {} core{} on average, p95 {:.0f} %", cpu->mean, cores, cores == 1 ? "" : "s", cpu->p95);
        if (tree) mean += fmt::format("; the watched processes had {:.0f} % of one core", tree->mean);
        if (full.is_most()) {
            const std::string shown = fmt::format("{}; above {:.0f} % in {:.0f} % of the samples", mean,
                                                  kWatchPolicy.cpu_full_above, 100 * full.value());
            const double used = cpu->mean * cores;
            if (tree && tree->mean < (1 - kWatchPolicy.most) * used)
                add("cpu_taken_by_others", Severity::kWarning, -1,
                    "every core is busy most of the time, mostly with processes that were not watched", shown);
            else
                add("cpu_full", Severity::kWarning, -1, "every core is busy most of the time", shown);
        } else if (core.is_most())
            add("one_core_full", Severity::kInfo, -1, "at least one core is full most of the time while others have room",
                fmt::format("{}; a core above {:.0f} % in {:.0f} % of the samples", mean, kWatchPolicy.core_full_above,
                            100 * core.value()));
        else
            add("cpu_has_room", Severity::kInfo, -1, "the CPU has room", mean);
        if (throttled && throttled->mean > kWatchPolicy.quota_throttled)
            add("cpu_quota", Severity::kWarning, -1, "the control group's CPU quota holds processes back",
                fmt::format("{:.0f} % of the time{}", throttled->mean,
                            limit ? fmt::format("; the quota is {:.2g} cores", limit->maximum) : ""));
    }

    void memory() {
        const WatchRecord::Evidence& kept = record_.evidence();
        if (const Statistics used = statistics_of(kept.memory); used && used->maximum > kWatchPolicy.memory_edge)
            add("memory_edge", Severity::kWarning, -1, "memory near the edge",
                fmt::format("peak {:.1f} % of what may be used", used->maximum));
        if (!kept.peak_swap || *kept.peak_swap <= 0) return;
        const double growth = *kept.peak_swap - kept.first_swap.value_or(0);
        const std::string peak = fmt::format("peak {}", base::print_bytes(static_cast<std::uint64_t>(*kept.peak_swap)));
        if (growth > kWatchPolicy.swap_growth_bytes)
            add("swapping", Severity::kWarning, -1, "memory was swapped out while watching",
                fmt::format("{}, {} more than at first", peak, base::print_bytes(static_cast<std::uint64_t>(growth))));
        else
            add("swap_in_use", Severity::kInfo, -1, "swap is in use, though it did not grow", peak);
    }

    const WatchRecord& record_;
    std::vector<Finding> findings_;
};

}  // namespace

WatchRecord::WatchRecord(sense::MachineFacts facts, std::chrono::nanoseconds interval)
    : facts_(std::move(facts)), interval_(interval) {
    traces_.gpus.resize(facts_.gpus.size());
    evidence_.gpus.resize(facts_.gpus.size());
}

void WatchRecord::add(const sense::Sample& sample) {
    summary_.add(sample);
    traces_.ticks = sample.sequence + 1;
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

double WatchRecord::energy_seconds(int gpu) const {
    const GpuEvidence& of = evidence_.gpus.at(static_cast<std::size_t>(gpu));
    return of.first_energy ? std::chrono::duration<double>(*of.last_energy - *of.first_energy).count() : 0;
}

std::vector<Finding> verdict(const WatchRecord& record) { return Judge(record).judge(); }

}  // namespace millrace::report
