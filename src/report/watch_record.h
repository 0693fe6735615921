#pragma once
// Everything a watch keeps of its samples, in bounded memory: statistics for the summary, traces for the plot, evidence for the
// verdict.
//
// What the figures say, and what they cannot say: NVML's utilisation tells that a kernel was resident; how busy the chip was is
// told by the activity counters (GPM), where the GPU has them. A rule whose inputs are absent stays silent.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/statistics.h"
#include "report/trace.h"
#include "sense/machine.h"

namespace millrace::report {

/// Every threshold of the verdict and where it comes from. Percentages are 0..100, shares 0..1.
struct Policy {
    /// A share estimated from n samples is off by up to 1/sqrt(n) at 95 %; below ten that is more than 30 points.
    std::uint64_t fewest_samples = 10;
    /// A GPU below this is idle, a core above that is full, and more than half of the samples make a case: the bounds of the
    /// CPU-bottleneck rule of SageMaker Debugger.
    double idle_below = 10, core_full_above = 90, most = 0.5;
    /// Utilisation below this was called low, above that good, by the monitor this one replaces; the PyTorch plugin for
    /// TensorBoard also warned below 50.
    double utilization_low = 50, utilization_good = 90;
    /// A p95 above this with a p5 below idle_below comes and goes: the fluctuation rule of SageMaker Debugger.
    double fluctuates_above = 70;
    /// SM activity below this likely means ineffective use, and at least that is needed for effective use: NVIDIA's guide to the
    /// DCGM profiling metrics.
    double sm_low = 50, sm_good = 80;
    /// About 80 % is the most that DRAM activity reaches in practice (same guide); three quarters of it count as busy.
    double dram_busy = 60;
    /// Activity of the busiest arithmetic pipe that counts as working. Our own choice: large bf16 matrix products keep the tensor
    /// pipes of an H200 well above it, element-wise kernels stay far below.
    double pipe_busy = 30;
    /// Throttled in more than this share of the samples is worth a word: 5 % is where XProf begins to call a step bound.
    double throttled_share = 0.05;
    /// Share of the time, in percent, in which the control group's CPU quota may hold the program back (the same band).
    double quota_throttled = 5;
    /// Memory above this is near the edge: the monitor this one replaces.
    double memory_edge = 95;
    /// The whole CPU above this is full (SageMaker Debugger's bound for a core).
    double cpu_full_above = 90;
    /// Growth of swap while watching that is more than noise. Our own choice.
    double swap_growth_bytes = 64.0 * 1024 * 1024;
};

inline constexpr Policy kWatchPolicy;

enum class Severity : std::uint8_t { kInfo, kWarning };

struct Finding {
    std::string kind;  ///< stable key: "gpu_idle", "resident_not_busy", ...; docs/telemetry.md lists them
    Severity severity = Severity::kInfo;
    int gpu = -1;          ///< index, -1: the machine
    std::string text;      ///< the verdict, for people
    std::string evidence;  ///< the figures it rests on
};

/// For the plot, percentages unless the name says otherwise.
struct GpuTraces {
    Trace utilization, sm_active, tensor_active, dram_active, memory, power_watts, temperature_celsius;
};
struct Traces {
    std::vector<GpuTraces> gpus;
    Trace cpu, busiest_core, tree;  ///< tree: of all cores this process may use
    Trace memory;
    std::uint64_t ticks = 0;  ///< of the schedule, missed ones included
};

class WatchRecord {
public:
    struct Share {
        std::uint64_t of = 0, known = 0;
        void add(bool is) {
            ++known;
            of += is ? 1 : 0;
        }
        /// Whether it is known and above the half that makes a case.
        [[nodiscard]] bool is_most() const { return known > 0 && value() > kWatchPolicy.most; }
        [[nodiscard]] double value() const { return static_cast<double>(of) / static_cast<double>(known); }
    };
    /// What the verdict needs beside the summary; shares are of the samples.
    struct GpuEvidence {
        Share idle, idle_with_full_core;
        record::Series memory, power;  ///< % of total and of limit
        bool lost = false;
        std::optional<std::chrono::nanoseconds> first_energy, last_energy;
    };
    struct Evidence {
        std::vector<GpuEvidence> gpus;
        Share cpu_full, core_full;  ///< the whole CPU, or at least one core
        record::Series memory;      ///< % of what may be used
        std::optional<double> first_swap, peak_swap;
    };

    WatchRecord(sense::MachineFacts facts, std::chrono::nanoseconds interval);

    void add(const sense::Sample& sample);

    [[nodiscard]] const sense::MachineFacts& facts() const { return facts_; }
    [[nodiscard]] std::chrono::nanoseconds interval() const { return interval_; }
    [[nodiscard]] const record::SampleSummary& summary() const { return summary_; }
    [[nodiscard]] const Traces& traces() const { return traces_; }
    [[nodiscard]] const record::Series& late_milliseconds() const { return late_; }
    /// Ticks of the schedule, up to the newest sample, without one.
    [[nodiscard]] std::uint64_t missed() const { return traces_.ticks - summary_.samples(); }
    /// Between the first and the last reading of the GPU's energy counter: what SampleSummary::joules covers.
    [[nodiscard]] double energy_seconds(int gpu) const;
    [[nodiscard]] const Evidence& evidence() const { return evidence_; }

private:
    void add_gpu(std::size_t index, const sense::Sample& sample, const std::optional<double>& busiest_core);

    sense::MachineFacts facts_;
    std::chrono::nanoseconds interval_;
    record::SampleSummary summary_;
    Traces traces_;
    record::Series late_;
    Evidence evidence_;
};

/// GPU by GPU, then the machine. Never empty: says so when there is nothing to judge by.
std::vector<Finding> verdict(const WatchRecord& record);

}  // namespace millrace::report
