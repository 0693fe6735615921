#pragma once
// Population based training: trials run side by side; at each interval the worst quarter goes on from the weights of one of the
// best quarter, with its parameters changed a little.

#include <memory>

#include "search/scheduler.h"
#include "search/stream.h"

namespace millrace::search {

/// A trial is compared with all that have a report at its step. It copies only from a feasible trial that is still at that step.
base::Result<std::unique_ptr<Scheduler>> make_population_scheduler(const Space& space, const SchedulerOptions& options);

/// Each parameter is drawn anew with probability 1/4, else moved up or down: by a factor of 1.2 (log), a tenth of the range
/// (uniform, int, at least one step); choices and alternatives stay.
Configuration perturbed(const Space& space, const Configuration& configuration, Stream& stream);

}  // namespace millrace::search
