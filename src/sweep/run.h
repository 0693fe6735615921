#pragma once
// A sweep in a run directory: sweep.db, slices/, best.toml, sweep.html beside the manifest and events of every run.

#include <string>
#include <vector>

#include "comm/group.h"
#include "sweep/finals.h"
#include "sweep/worker.h"

namespace millrace::sweep {

/// Heartbeats come six times as often as `grace` passes.
struct RunRequest : WorkOptions {
    io::Path out;                      ///< the run directory
    bool number_if_taken = false;      ///< a new run: `out`-2 and so on where `out` exists already
    bool resume = false;               ///< go on with the study in `out`
    std::string database;              ///< URL of a server; empty: `out`/sweep.db
    std::string journal;               ///< file for Optuna's journal; empty: none
    std::vector<std::string> command;  ///< argv
    comm::Group* group = nullptr;      ///< each rank is a worker; null: this process alone; borrowed
};

struct RunReport {
    std::string out;
    bool was_stopped = false, is_out_of_time = false;
    int signal = 0;     ///< that stopped this or another rank
    Progress progress;  ///< at the end, with the epochs of all ranks
    std::size_t programs = 0;
    std::vector<FinalistResult> finalists;  ///< best first
    std::vector<double> importance;         ///< one for each parameter; empty: too few trials
    std::string best_recipe;                ///< file; empty: no trial may win
    std::string page;                       ///< file; empty: none was written
};

/// Runs the study until it is done or stopped. An error before the first epoch leaves no folder behind. In a group rank 0 owns
/// the run directory and writes the results; the others have its database and slices, and a report without results.
base::Result<RunReport> run_study(const StudyFile& study, const RunRequest& request, LaneFactory& factory,
                                  const base::Clock& clock = base::SteadyClock::shared());

}  // namespace millrace::sweep
