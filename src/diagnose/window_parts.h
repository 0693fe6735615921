#pragma once
// Windows too short to show a step. A recorder that took a loop inside of a step for the step (reads of one layer after another)
// opens windows for a few turns of that loop, and in such a window nothing but the loop returns.

#include <span>
#include <vector>

#include "diagnose/steps.h"

namespace millrace::diagnose {

/// Empties the steps of windows that hold less than three steps of the window with most time in steps, launch little but what
/// those launch, and either show no period or a loop with less than half of their kinds of work; not where steps are marked.
/// Gives how many.
std::size_t leave_out_parts(const Timeline& timeline, std::span<const Lane> lanes, std::vector<WindowSteps>& windows);

}  // namespace millrace::diagnose
