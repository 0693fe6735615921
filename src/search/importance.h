#pragma once
// How much each parameter matters for an objective: permutation importance on a random forest.

#include <cstdint>
#include <span>
#include <vector>

#include "search/trial.h"

namespace millrace::search {

/// One share for each parameter, at least 0, together 1: by how much a tree's error on trials that it has not seen grows when
/// that parameter's values are shuffled among them. All 0 when the forest explains less than a tenth of the variance.
/// It predicts the rank of a trial, so that a diverging value counts no more than being last. Complete trials with finite values
/// alone, the newest 2000; empty when there are fewer than 8.
std::vector<double> parameter_importance(const Space& space, std::span<const Trial> trials, size_t objective, uint64_t seed);

}  // namespace millrace::search
