#pragma once
// The line of an evaluation. It runs through the same model as training does, so the innermost frame of its launches is mostly
// the model's; what a person changes is the code that is the evaluation's own.

#include <optional>

#include "diagnose/frame_counts.h"
#include "diagnose/study.h"

namespace millrace::diagnose {

/// The innermost of these with policy.launches_under of the evaluations' launches that have a stack (where hardly any has: of
/// the samples of the main thread):
/// - a line that training steps do not run through, or the busiest of such lines in one function;
/// - where all lines are shared (one loop for both): the busiest line of the innermost function in which training also runs
///   through others, as that is where the two part;
/// - any line.
/// Absent where no frames are known, or only native ones.
std::optional<Spot> place_of_evaluation(const Study& study);

}  // namespace millrace::diagnose
