#pragma once
// What recording cost the program, by its own speed with and without.

#include <optional>
#include <span>

#include "diagnose/timeline.h"

namespace millrace::diagnose {

/// Mean step outside of windows in milliseconds: the median over the steps, since blocks also hold evaluations. Absent where less
/// than record::kLeastUnrecordedSeconds or ...Steps ran unrecorded: too little to tell.
std::optional<double> undisturbed_step_ms(std::span<const Block> unrecorded);

/// Share of the run's time that recording cost `process`: what its windows added to their steps, and what counting steps outside
/// of them takes, as far as that is known.
std::optional<double> overhead_share(const Timeline& timeline, std::uint32_t process, double recorded_ms,
                                     std::optional<double> undisturbed_ms);

}  // namespace millrace::diagnose
