#pragma once
// Windows that do not speak for the run. Each of these empties their steps and gives how many they were.

#include <span>
#include <vector>

#include "diagnose/steps.h"

namespace millrace::diagnose {

/// Those too short to show a step. A recorder that took a loop inside of a step for the step (reads of one layer after another)
/// opens windows for a few turns of that loop, in which nothing else returns: they hold less than three steps of the window with
/// most time in steps, launch little but what those launch, and either show no period or a loop with less than half of their
/// kinds of work. Not where steps are marked.
std::size_t leave_out_parts(const Timeline& timeline, std::span<const Lane> lanes, std::vector<WindowSteps>& windows);

/// Those in which nothing returns, where it does in others: start-up would pass for a very long step.
std::size_t leave_out_shapeless(std::vector<WindowSteps>& windows);

/// The first ones where they are much faster than `unrecorded` blocks, all windows together are too fast, and ten steps or more
/// of the others come nearer: batches that were fetched ahead, a disk's cache or a cool processor last for as long.
std::size_t leave_out_fast(std::span<const Block> unrecorded, std::vector<WindowSteps>& windows);

}  // namespace millrace::diagnose
