#pragma once
// The recipe keys of the six size-matched baselines; presets debug and phase1 set the number of parameters to match.

#include <vector>

#include "models/registry.h"

namespace millrace::models {

std::vector<Family> baseline_families();

}  // namespace millrace::models
