#pragma once
// Each moment of a step has one owner. Busy moments belong to what ran; idle ones to the cause whose cure closes them in the
// replay, asked in the order of how specific causes are, so that the gap after a blocking call belongs to that call and not to
// the host work that fills it.

#include <optional>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/replay/cures.h"

namespace millrace::diagnose {

struct Breakdown {
    OwnerMs ms{};  ///< mean per step; sums to the mean recorded step, and Study::unseen_loading_ms
    double busy_share = 0;
    std::size_t evaluations = 0;             ///< phases between steps
    OwnerMs evaluation_ms{};                 ///< of them, mean per step: what they add to it
    std::optional<StepView> typical, worst;  ///< the step of median length, the longest one
};

Breakdown divide_steps(const Study& study, const Roles& roles);

}  // namespace millrace::diagnose
