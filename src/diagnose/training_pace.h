#pragma once
// The program's speed outside of windows, in training steps.

#include <vector>

#include "diagnose/study.h"

namespace millrace::diagnose {

/// The timeline's blocks. What the recorder counts as a step is what returns: several training steps with an evaluation, or one
/// turn of a loop inside of a step. Where windows show that it is a whole multiple or part of a training step, training steps
/// count; where it is neither, nobody knows the pace, and such blocks are left out.
std::vector<Block> in_training_steps(const Study& study);

}  // namespace millrace::diagnose
