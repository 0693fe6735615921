#pragma once
// Turns of the loop that a step is, as far as launches have places.

#include <cstddef>
#include <optional>
#include <vector>

#include "record/step_finder.h"

namespace millrace::record {

constexpr std::size_t kLeastTurns = 3;

/// Numbers of acts that launched: where turns begin, and where what is before each of them (ends[i] before begins[i]) was over.
struct FoundTurns {
    std::vector<std::size_t> begins, ends;
    std::uint64_t loop = 0;  ///< Turn::loop
    bool assumed = false;    ///< the loop is not known: what lies between turns cannot be told from them
};

std::optional<FoundTurns> turns_by_updates(const StepInput& input);
std::optional<FoundTurns> turns_by_lines(const StepInput& input);

}  // namespace millrace::record
