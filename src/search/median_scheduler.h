#pragma once
// Stops trials that are worse than the median of the others at the same step.

#include <memory>

#include "search/scheduler.h"

namespace millrace::search {

/// A trial is pruned when more than half of the others with a finite report at its step are better: feasible where it is not, or
/// on an earlier Pareto front, which with one objective means a smaller value.
base::Result<std::unique_ptr<Scheduler>> make_median_scheduler(const SchedulerOptions& options);

}  // namespace millrace::search
