#pragma once
// The tree-structured Parzen estimator, multivariate as in Optuna 5: one density of the good trials, one of the others, and the
// configuration among some drawn from the good ones where their ratio is largest.

#include <memory>

#include "search/sampler.h"

namespace millrace::search {

/// The best tenth (at most 25, by best_first: constraints first, several objectives by front) is good; running trials count as
/// bad ones, so that trials asked for at the same time keep apart. Refuses fewer than one startup trial or candidate.
base::Result<std::unique_ptr<Sampler>> make_tpe_sampler(const Space& space, const SamplerOptions& options);

}  // namespace millrace::search
