#pragma once
// Windows in which the program is faster than in the rest of its run. The first ones come early: batches that a loader fetched
// ahead, a disk's cache or a cool processor last for as long as such a window, and what slows the rest down is not in it.

#include <span>
#include <vector>

#include "diagnose/steps.h"

namespace millrace::diagnose {

/// Empties the steps of the first windows that are much faster than `unrecorded` blocks, where all windows together are too fast
/// and ten steps or more of the others come nearer. Gives how many.
std::size_t leave_out_hasty(std::span<const Block> unrecorded, std::vector<WindowSteps>& windows);

}  // namespace millrace::diagnose
