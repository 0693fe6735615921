#pragma once
// The program's speed outside of windows, in training steps.

#include <vector>

#include "diagnose/study.h"

namespace millrace::diagnose {

/// The timeline's blocks. What the recorder counts as a step is what returns: training with an evaluation after every tenth step
/// returns after ten. Where windows show that a counted step holds several training steps, each of them counts; where
/// windows and counted steps are parts of one (a loop over layers), they count as such, and blocks of less than a step are left
/// out.
std::vector<Block> in_training_steps(const Study& study);

}  // namespace millrace::diagnose
