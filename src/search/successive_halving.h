#pragma once
// Schedulers that pause trials at rungs and promote the best: ASHA (asynchronous successive halving) and Hyperband.

#include <memory>
#include <vector>

#include "search/scheduler.h"

namespace millrace::search {

/// A trial pauses at each rung and is promoted as soon as it is among the best 1/factor of all that reached the rung. No trial
/// waits for others: a lane without a trial to promote starts a new one.
base::Result<std::unique_ptr<Scheduler>> make_asha(const SchedulerOptions& options);

/// One bracket of Hyperband: how many trials come to each of its rungs, and at which step that is.
struct Bracket {
    struct Rung {
        int64_t trials = 0;
        int64_t step = 0;
        bool operator==(const Rung&) const = default;
    };
    std::vector<Rung> rungs;
};

/// From the bracket with the most trials and the shortest first rung to the one that runs a few trials in full.
std::vector<Bracket> hyperband_brackets(const Rungs& rungs);

/// Trials fill the brackets in turn by their numbers, and begin again after the last. A rung promotes its best when all trials
/// of the bracket have come to it or ended; lanes meanwhile start the next bracket. When no new trial may start, a bracket that
/// is not full counts as full.
base::Result<std::unique_ptr<Scheduler>> make_hyperband(const SchedulerOptions& options);

}  // namespace millrace::search
