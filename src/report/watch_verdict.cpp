#include "report/watch_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "sense/sample.h"

namespace millrace::report {
namespace {

using Statistics = std::optional<record::Statistics>;

std::string mean_text(const char* name, const Statistics& statistics) {
    return statistics ? fmt::format("{} {:.0f} %", name, statistics->mean) : fmt::format("{} -", name);
}

/// "utilisation 96 %, SM active 12 %, tensor active 1 %, DRAM active 3 % on average"
std::string activity_text(const GpuEvidence& gpu) {
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
std::pair<double, const char*> busiest_pipe(const GpuEvidence& gpu) {
    std::pair<double, const char*> busiest{-1, "none"};
    for (const auto& [statistics, name] :
         {std::pair{&gpu.tensor_active, "tensor"}, std::pair{&gpu.fp32_active, "fp32"}, std::pair{&gpu.fp16_active, "fp16"}})
        if (*statistics && (*statistics)->mean > busiest.first) busiest = {(*statistics)->mean, name};
    return busiest;
}

/// The judgement of one evidence, finding by finding.
class Judge {
public:
    Judge(const Evidence& evidence, const Policy& policy) : evidence_(evidence), policy_(policy) {}

    std::vector<Finding> judge() {
        const bool enough = evidence_.samples >= policy_.fewest_samples;
        if (!enough)
            add("too_few_samples", Severity::kInfo, -1, "too few samples to judge how busy anything was",
                fmt::format("{} taken, {} needed; a longer watch or a shorter interval gives them", evidence_.samples,
                            policy_.fewest_samples));
        for (const GpuEvidence& gpu : evidence_.gpus) {
            if (enough) activity(gpu);
            facts(gpu);
        }
        if (evidence_.gpus.empty())
            add("no_gpu", Severity::kInfo, -1, "no GPU was watched: this judges the CPU alone",
                evidence_.no_gpu.empty() ? "none is visible" : evidence_.no_gpu);
        if (enough) processor();
        memory();
        return std::move(findings_);
    }

private:
    void add(const char* kind, Severity severity, int gpu, std::string text, std::string evidence) {
        findings_.push_back({kind, severity, gpu, std::move(text), std::move(evidence)});
    }

    /// One finding: how busy the GPU was, as far as its counters tell.
    void activity(const GpuEvidence& gpu) {
        if (!gpu.utilization && !gpu.sm_active)
            return add("gpu_unread", Severity::kInfo, gpu.index, "neither utilisation nor activity could be read",
                       gpu.lost ? "the GPU was lost" : "the driver gave no figure");
        if (idle(gpu)) return;
        if (gpu.sm_active)
            counted(gpu);
        else
            uncounted(gpu);
        if (gpu.utilization && gpu.utilization->p95 > policy_.fluctuates_above && gpu.utilization->p5 < policy_.idle_below)
            add("gpu_fluctuates", Severity::kInfo, gpu.index, "work comes and goes: busy stretches alternate with idle ones",
                fmt::format("utilisation p5 {:.0f} %, p95 {:.0f} %", gpu.utilization->p5, gpu.utilization->p95));
    }

    bool idle(const GpuEvidence& gpu) {
        const bool unused = (!gpu.utilization || gpu.utilization->maximum <= 0) && (!gpu.sm_active || gpu.sm_active->maximum < 1);
        if (unused) {
            add("gpu_unused", Severity::kWarning, gpu.index, "the GPU was not used at all", activity_text(gpu));
            return true;
        }
        if (!gpu.idle_share || *gpu.idle_share <= policy_.most) return false;
        const std::string share = fmt::format("below {:.0f} % utilisation in {:.0f} % of the samples; {}", policy_.idle_below,
                                              100 * *gpu.idle_share, activity_text(gpu));
        add("gpu_idle", Severity::kWarning, gpu.index, "idle most of the time: no kernel was resident", share);
        if (gpu.idle_with_full_core_share && *gpu.idle_with_full_core_share > policy_.most)
            add("cpu_holds_gpu", Severity::kWarning, gpu.index, "a CPU core is full while the GPU idles: the host is the limit",
                fmt::format("in {:.0f} % of the samples a core was above {:.0f} % while the GPU was below {:.0f} %",
                            100 * *gpu.idle_with_full_core_share, policy_.core_full_above, policy_.idle_below));
        return true;
    }

    /// With activity counters.
    void counted(const GpuEvidence& gpu) {
        const double sm = gpu.sm_active->mean;
        if (sm < policy_.sm_low) {
            if (gpu.utilization && gpu.utilization->mean >= policy_.utilization_low)
                return add("resident_not_busy", Severity::kWarning, gpu.index,
                           "a kernel was resident but the chip was hardly busy: kernels too small for the chip, or time between "
                           "launches; a timeline of one step tells which",
                           activity_text(gpu));
            return add("gpu_partly_used", Severity::kWarning, gpu.index,
                       "partly used: no kernel was resident for much of the time, and the chip was not full when one was",
                       activity_text(gpu));
        }
        const auto [pipe, name] = busiest_pipe(gpu);
        if (gpu.dram_active && gpu.dram_active->mean >= policy_.dram_busy && gpu.dram_active->mean > pipe)
            return add("memory_bound", Severity::kInfo, gpu.index, "busy, and bound by device memory", activity_text(gpu));
        if (pipe >= policy_.pipe_busy)
            return add("busy_arithmetic", Severity::kInfo, gpu.index, fmt::format("busy with arithmetic ({} pipes)", name),
                       activity_text(gpu));
        add("busy_waiting", Severity::kInfo, gpu.index,
            sm >= policy_.sm_good
                ? "multiprocessors are occupied, yet neither arithmetic nor memory is near its limit: kernels wait"
                : "moderately busy: neither the multiprocessors nor arithmetic nor memory are near their limit",
            activity_text(gpu));
    }

    /// Utilisation alone: it proves idleness, it cannot prove work.
    void uncounted(const GpuEvidence& gpu) {
        const double utilization = gpu.utilization->mean;
        if (utilization < policy_.utilization_low)
            return add("gpu_partly_used", Severity::kWarning, gpu.index,
                       "low utilisation: no kernel was resident for much of the time", activity_text(gpu));
        add("utilization_only", Severity::kInfo, gpu.index,
            fmt::format("a kernel was resident {} of the time; whether the chip was busy, utilisation alone cannot tell",
                        utilization >= policy_.utilization_good ? "nearly all" : "most"),
            activity_text(gpu) +
                (gpu.has_activity ? "; the activity counters gave nothing" : "; this GPU has no activity counters (GPM)"));
    }

    /// What needs no statistics.
    void facts(const GpuEvidence& gpu) {
        if (gpu.throttle != 0 && gpu.throttled_share > policy_.throttled_share)
            add("gpu_throttled", Severity::kWarning, gpu.index, "ran below its clocks: " + sense::throttle_text(gpu.throttle),
                fmt::format("in {:.0f} % of the samples", 100 * gpu.throttled_share));
        if (gpu.memory_percent && gpu.memory_percent->maximum > policy_.memory_edge)
            add("gpu_memory_edge", Severity::kWarning, gpu.index, "device memory near the edge",
                fmt::format("peak {:.1f} % of the total", gpu.memory_percent->maximum));
        if (gpu.implausible_power > 0)
            add("power_implausible", Severity::kInfo, gpu.index, "the driver reported power the GPU cannot draw; left out",
                fmt::format("{} readings beyond twice the limit", gpu.implausible_power));
        if (gpu.lost)
            add("gpu_lost", Severity::kWarning, gpu.index, "the GPU stopped answering while it was watched",
                "its figures end there; the system log may hold an Xid message");
    }

    void processor() {
        if (!evidence_.cpu) return add("cpu_unread", Severity::kInfo, -1, "the CPU's load could not be read", "no figure");
        std::string mean = fmt::format("CPU {:.0f} % of {} core{} on average, p95 {:.0f} %", evidence_.cpu->mean, evidence_.cores,
                                       evidence_.cores == 1 ? "" : "s", evidence_.cpu->p95);
        if (evidence_.tree) mean += fmt::format("; the watched processes had {:.0f} % of one core", evidence_.tree->mean);
        if (evidence_.cpu_full_share && *evidence_.cpu_full_share > policy_.most) {
            const std::string full = fmt::format("{}; above {:.0f} % in {:.0f} % of the samples", mean, policy_.cpu_full_above,
                                                 100 * *evidence_.cpu_full_share);
            const double used = evidence_.cpu->mean * evidence_.cores;
            if (evidence_.tree && evidence_.tree->mean < (1 - policy_.most) * used)
                add("cpu_taken_by_others", Severity::kWarning, -1,
                    "every core is busy most of the time, mostly with processes that were not watched", full);
            else
                add("cpu_full", Severity::kWarning, -1, "every core is busy most of the time", full);
        } else if (evidence_.core_full_share && *evidence_.core_full_share > policy_.most)
            add("one_core_full", Severity::kInfo, -1, "at least one core is full most of the time while others have room",
                fmt::format("{}; a core above {:.0f} % in {:.0f} % of the samples", mean, policy_.core_full_above,
                            100 * *evidence_.core_full_share));
        else
            add("cpu_has_room", Severity::kInfo, -1, "the CPU has room", mean);
        if (evidence_.quota_throttled && evidence_.quota_throttled->mean > policy_.quota_throttled)
            add("cpu_quota", Severity::kWarning, -1, "the control group's CPU quota holds processes back",
                fmt::format("{:.0f} % of the time{}", evidence_.quota_throttled->mean,
                            evidence_.limit_cores ? fmt::format("; the quota is {:.2g} cores", *evidence_.limit_cores) : ""));
    }

    void memory() {
        if (evidence_.memory_percent && evidence_.memory_percent->maximum > policy_.memory_edge)
            add("memory_edge", Severity::kWarning, -1, "memory near the edge",
                fmt::format("peak {:.1f} % of what may be used", evidence_.memory_percent->maximum));
        if (!evidence_.peak_swap_bytes || *evidence_.peak_swap_bytes <= 0) return;
        const double growth = *evidence_.peak_swap_bytes - evidence_.first_swap_bytes.value_or(0);
        const std::string peak =
            fmt::format("peak {}", base::print_bytes(static_cast<std::uint64_t>(*evidence_.peak_swap_bytes)));
        if (growth > policy_.swap_growth_bytes)
            add("swapping", Severity::kWarning, -1, "memory was swapped out while watching",
                fmt::format("{}, {} more than at first", peak, base::print_bytes(static_cast<std::uint64_t>(growth))));
        else
            add("swap_in_use", Severity::kInfo, -1, "swap is in use, though it did not grow", peak);
    }

    const Evidence& evidence_;
    const Policy& policy_;
    std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> verdict(const Evidence& evidence, const Policy& policy) { return Judge(evidence, policy).judge(); }

}  // namespace millrace::report
