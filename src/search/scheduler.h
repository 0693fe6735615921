#pragma once
// Schedulers decide how long trials run. Like samplers they are pure functions of the trials so far: the driver enters a report
// into Trial::reports, asks decide() and acts. Reports of trials that run side by side are entered before the first decide().
// `trials` are those of the search in the order of their numbers, which may have gaps: positions count.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "search/stream.h"
#include "search/trial.h"

namespace millrace::search {

/// Steps (the driver's unit: epochs, say) at which trials are compared: first, first * factor, ... below last, and last.
struct Rungs {
    int64_t first = 1;
    int64_t factor = 3;
    int64_t last = 27;

    [[nodiscard]] std::vector<int64_t> steps() const;
    /// So many trials bring one to the last step where 1/factor of each rung goes on.
    [[nodiscard]] int64_t least_trials() const;
};

struct SchedulerOptions {
    std::string name = "none";  ///< none, asha, hyperband, median, pbt
    Rungs rungs;                ///< `last` is the length of a full trial for all of them
    /// Which objective decides about pruning; without it all of them do, by their Pareto fronts.
    std::optional<size_t> objective;
    int64_t interval = 1;     ///< median, pbt: steps between decisions
    int64_t warmup = 1;       ///< median: no trial is stopped before this step
    int64_t least_known = 4;  ///< median: no trial is stopped while fewer others have a report at its step
    int64_t population = 16;  ///< pbt: trials that run side by side; at least 4
    uint64_t seed = 0;        ///< pbt
};

enum class Action {
    proceed,   ///< run on until Scheduler::next_step
    pause,     ///< wait at this step; next() may promote it
    prune,     ///< end for good
    complete,  ///< the last step is reached: finish() it with its report
    fail,      ///< the report is not finite
    copy       ///< take over the state of trial `from` at this step and run on with `configuration`
};

struct Decision {
    Action action = Action::proceed;
    int64_t from = -1;            ///< of copy: the number of the trial whose state is taken
    Configuration configuration;  ///< of copy
};

/// What a free lane runs next.
struct Assignment {
    std::optional<int64_t> promoted;  ///< the number of a paused trial; a new trial when empty
    int64_t until = 0;                ///< the step of its next report
};

class Scheduler {
public:
    Scheduler(Rungs rungs, std::optional<size_t> objective) : rungs_(rungs), objective_(objective) {}
    virtual ~Scheduler() = default;

    /// About trials[index] after its latest report. A report that is not finite fails, one at the last step completes.
    [[nodiscard]] Decision decide(std::span<const Trial> trials, size_t index) const;
    /// The step of the next report of trials[index]; trials.size() is a new one.
    [[nodiscard]] virtual int64_t next_step(std::span<const Trial> trials, size_t index) const = 0;
    /// What a free lane runs next; empty when nothing can. `may_start` says whether the budget has room for a new trial, which
    /// gets the position trials.size().
    [[nodiscard]] virtual std::optional<Assignment> next(std::span<const Trial> trials, bool may_start) const = 0;

protected:
    /// About a finite report before the last step.
    [[nodiscard]] virtual Decision judge(std::span<const Trial> trials, size_t index) const = 0;

    /// The last step with a report of trials[index]; 0 of a new one.
    [[nodiscard]] static int64_t last_step(std::span<const Trial> trials, size_t index) {
        return index < trials.size() ? trials[index].last_step() : 0;
    }
    /// Those of the positions `among` whose trials have a report at `step`, best first: feasible ones by pareto_order, then
    /// infeasible ones by their violation, then those whose report is not finite.
    [[nodiscard]] std::vector<size_t> order_at(std::span<const Trial> trials, std::span<const size_t> among, int64_t step) const;

    Rungs rungs_;
    std::optional<size_t> objective_;
};

/// `space` is what pbt perturbs within. Refuses unknown names and options out of range.
base::Result<std::unique_ptr<Scheduler>> make_scheduler(const Space& space, const SchedulerOptions& options);

/// Stops trials that are worse than the median of the others at the same step: a trial is pruned when more than half of the
/// others with a finite report at its step are better: feasible where it is not, or on an earlier Pareto front, which with one
/// objective means a smaller value.
base::Result<std::unique_ptr<Scheduler>> make_median_scheduler(const SchedulerOptions& options);

/// Population based training: trials run side by side; at each interval the worst quarter goes on from the weights of one of the
/// best quarter, with its parameters changed a little. A trial is compared with all that have a report at its step. It copies
/// only from a feasible trial that is still at that step.
base::Result<std::unique_ptr<Scheduler>> make_population_scheduler(const Space& space, const SchedulerOptions& options);

/// Each parameter is drawn anew with probability 1/4, else moved up or down: by a factor of 1.2 (log), a tenth of the range
/// (uniform, int, at least one step); choices and alternatives stay.
Configuration perturbed(const Space& space, const Configuration& configuration, Stream& stream);

/// Asynchronous successive halving: a trial pauses at each rung and is promoted as soon as it is among the best 1/factor of all
/// that reached the rung. No trial waits for others: a lane without a trial to promote starts a new one.
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
