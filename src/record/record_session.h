#pragma once
// `millrace record` from the first line of the run directory to the closing summary: runs the command under the probe, takes what
// the probes of all its processes write, samples its threads and the machine, and hands its exit status through.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/window_schedule.h"

namespace millrace::record {

struct RecordSettings {
    std::string out;                   ///< run directory
    std::vector<std::string> command;  ///< not empty
    std::string probe;                 ///< the probe's library (probe_files.h)
    bool samples = true;               ///< of threads, from outside
    ScheduleSettings schedule;
};

/// What the summary shows.
struct RecordOutcome {
    std::string run;  ///< the directory
    int status = 0;   ///< of the command; 128 + n after signal n
    double seconds = 0;
    std::uint64_t probed = 0, processes = 0;  ///< probed without a fault; seen in all
    std::uint64_t windows = 0, records = 0, dropped = 0, samples = 0;
    double steps = 0;         ///< of the process with most; 0 none found
    std::string steps_doubt;  ///< why they may be off by more than 2 %; empty where they are not
    std::optional<double> step_ms, window_step_ms;
    std::optional<double> cost, window_cost;  ///< shares of the run's, of a window's time
    double waiting_share = 0;                 ///< of a step that CUPTI may cost between windows
    std::uint64_t bytes = 0;                  ///< of the run directory
    std::vector<std::string> notes;           ///< why something was not recorded
};

/// An error is returned before the command begins: the run directory cannot be made (2), the command cannot be started (126,
/// 127), no place for the probe's memory (3). Whatever goes wrong later is in the notes; the command and its status come
/// first.
///
/// The command has our terminal and our standard streams; nothing is written to them while it runs. A signal that was sent to
/// this process alone is passed on to the command.
base::Result<RecordOutcome> record_command(const RecordSettings& settings);
/// "runs/record-20251104-120000", with a number behind it when that is taken.
std::string default_run_name();

/// A few lines for people.
std::string summary_text(const RecordOutcome& outcome);

}  // namespace millrace::record
