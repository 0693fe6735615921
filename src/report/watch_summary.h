#pragma once
// The closing words of a watch, for people and for machines, and its picture.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/watch_record.h"

namespace millrace::report {

/// What the summary says beside what the record holds.
struct WatchOutcome {
    double seconds = 0;              ///< watched, from start to stop
    double sampler_cpu_seconds = 0;  ///< of the sampler's thread
    double program_cpu_seconds = 0;  ///< of this program: sampler, outputs, display
    std::uint64_t samples = 0, missed = 0;
    std::vector<std::string> command;       ///< empty: the machine was watched
    std::optional<int> command_status;      ///< as handed through; absent while it runs
    std::uint64_t dropped_rows = 0;         ///< that outputs were too slow for
    std::vector<std::string> lost_outputs;  ///< names and reasons
};

/// Table of average, median, p5, p95, min, max per quantity; energy, peaks, schedule, own cost, verdict. Several lines, the last
/// one ended.
std::string summary_text(const WatchRecord& record, const WatchOutcome& outcome);

constexpr int kWatchSummaryVersion = 1;  ///< grows when a key changes its meaning or goes

/// One JSON object on one line, without newline; docs/telemetry.md describes it. What was not measured is null or not there.
std::string summary_json(const WatchRecord& record, const WatchOutcome& outcome);

/// Self-contained SVG for light and dark pages; its size is bounded however long the watch was. Panels of GPU activity, power and
/// temperature for each GPU, memory, CPU. Where samples were missed or a reading was absent the lines have gaps. `subject` says
/// what was watched: the command, or nothing.
std::string plot_svg(const WatchRecord& record, const std::string& subject);

}  // namespace millrace::report
