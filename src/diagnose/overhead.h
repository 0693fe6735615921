#pragma once
// What recording cost the program, by its own speed with and without.

#include <optional>
#include <span>

#include "diagnose/timeline.h"

namespace millrace::diagnose {

constexpr double kFastestPace = 0.6;  ///< a step outside of windows against inside: recording costs up to 40 %

/// Mean step outside of windows in milliseconds: the median over the steps, since blocks also hold evaluations. Absent where less
/// than record::kLeastUnrecordedSeconds or ...Steps ran unrecorded: too little to tell.
std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded);

/// Share of the run's time that recording cost `process`: what its windows added to their steps, what counting steps outside of
/// them takes, as far as that is known, and what CUPTI adds to launches there by our estimate (record::kWaitingCostNs).
/// `idle_launches`: of a step, those times the share of it in which the GPU idles: else the host has time for them.
std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms, double idle_launches);

}  // namespace millrace::diagnose
