#pragma once
// The recipe of a row: what its workload says and, over that, the command line.

#include <string>
#include <vector>

#include "base/recipe.h"
#include "bench/bench.h"
#include "tape/buffer.h"

namespace millrace::bench {

/// Refuses keys of `Options::settings` that no benchmark can follow: those of real data, of evaluation, checkpoints and
/// telemetry.
base::Result<base::Recipe> row_recipe(const Workload& workload, const Options& options);

/// The keys whose values the command line changes.
base::Result<std::vector<std::string>> changed_keys(const Workload& workload, const Options& options);

}  // namespace millrace::bench
