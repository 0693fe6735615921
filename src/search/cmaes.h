#pragma once
// Covariance matrix adaptation (Hansen, "The CMA Evolution Strategy: a tutorial") in the unit cube: weighted recombination,
// rank-one and rank-mu updates, cumulative step size adaptation. Coordinates outside of the cube are reflected at its faces.

#include <memory>

#include "search/sampler.h"

namespace millrace::search {

/// Trials g * population .. (g + 1) * population - 1 are generation g. The distribution that a trial is drawn from is computed
/// from the earlier generations' trials, in their order by best_first; a generation of which less than half is known is left out.
/// Refuses choices and parameters with an alternative: they have no direction to go.
base::Result<std::unique_ptr<Sampler>> make_cmaes_sampler(const Space& space, const SamplerOptions& options);

}  // namespace millrace::search
