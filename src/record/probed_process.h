#pragma once
// One probed process from its first record to its last: takes its records into the trace, watches its steps, and tells its probe
// when to record in full.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "record/metrics.h"
#include "record/probe_reader.h"
#include "record/pulse_blocks.h"
#include "record/step_count.h"
#include "record/step_watch.h"
#include "record/trace_file.h"
#include "record/window_schedule.h"

namespace millrace::record {

/// How much the run takes, for all processes together.
struct RunBytes {
    std::uint64_t taken = 0;
    bool tight = false;  ///< nothing but windows, texts and counts is kept any more
};
/// Where a run that has taken so many bytes in that time stands with its budget.
RunBytes run_bytes(const ScheduleSettings& settings, std::uint64_t taken, std::chrono::nanoseconds elapsed);

class ProbedProcess {
public:
    ProbedProcess(ProbeReader reader, const TraceOrigin& origin, const ScheduleSettings& settings, std::uint64_t now);

    /// Takes what has come since the last time and decides what comes next. `trace` and `events` are borrowed for the call.
    /// `loops` as StepWatch::facts has it.
    void tick(std::uint64_t now, const RunBytes& bytes, TraceWriter& trace, EventWriter& events,
              const LoopTable* loops = nullptr);
    /// The process is gone or `record` ends: what is left is taken, and steps that were not counted yet.
    void finish(std::uint64_t now, TraceWriter& trace, EventWriter& events, const LoopTable* loops = nullptr);

    [[nodiscard]] ProbeReader& reader() { return reader_; }
    [[nodiscard]] const ProbeReport& report() const { return report_; }
    [[nodiscard]] std::uint64_t windows() const { return windows_; }  ///< that have begun
    [[nodiscard]] const WindowSchedule& schedule() const { return schedule_; }
    [[nodiscard]] const TraceOrigin& origin() const { return origin_; }
    [[nodiscard]] std::uint32_t main_thread() const { return steps_.main_thread(); }
    [[nodiscard]] double pulse_step_ns() const { return blocks_.step_ns(); }
    [[nodiscard]] std::uint64_t dropped() const { return cupti_lost_ + lane_lost_; }
    /// That it has made since it began, as far as that is known, and why it may be off by more than 2 %; empty where it is not.
    [[nodiscard]] double steps() const { return count_.steps(); }
    [[nodiscard]] std::string steps_doubt() const {
        return steps_.trained() && !trains_ ? "what repeats does not train, and something does" : count_.doubt(steps_);
    }
    [[nodiscard]] std::uint64_t records() const { return records_; }
    [[nodiscard]] std::uint64_t damaged() const { return reader_.damaged(); }

private:
    void drain(bool keep_all, TraceWriter& trace, EventWriter& events);
    void take(std::span<const Record> slots, EventWriter& events);  ///< a record and its parts
    void add_pulses(TraceWriter& trace);
    void end_window(Sureness before, EventWriter& events);
    void say_fault(TraceWriter& trace, EventWriter& events);
    void say_counts(EventWriter& events) const;
    [[nodiscard]] ScheduleView view_at(std::uint64_t now, std::uint64_t bytes, const LoopTable* loops);

    ProbeReader reader_;
    TraceOrigin origin_;
    StepWatch steps_;
    StepCount count_;
    PulseBlocks blocks_;
    WindowSchedule schedule_;
    ProbeReport report_;
    std::vector<Record> kept_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pulses_;  ///< number, time
    std::uint64_t cupti_lost_ = 0, lane_lost_ = 0, told_lost_ = 0, records_ = 0, windows_ = 0;
    std::uint64_t window_at_ = 0;                    ///< when the newest window was ordered
    bool counted_ = false, counted_before_ = false;  ///< in it and in those before: by the probe
    bool trains_ = false;                            ///< what is counted
    bool said_fault_ = false;
};

/// For people: why a probe records nothing; empty without a fault.
std::string fault_text(const ProbeReport& report, std::uint32_t pid);

}  // namespace millrace::record
