#pragma once
// Everything a watch keeps of its samples, in bounded memory: statistics for the summary, traces for the plot, evidence for the
// verdict.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/statistics.h"
#include "report/trace.h"
#include "report/watch_verdict.h"
#include "sense/machine.h"

namespace millrace::report {

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
    [[nodiscard]] std::uint64_t missed() const;  ///< ticks of the schedule, up to the newest sample, without one
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
    std::uint64_t ticks_ = 0;
};

}  // namespace millrace::report
