#pragma once
// What a step takes more outside of windows than in them, where windows are too fast to speak for the run: a loader that is late
// now and then, in a program whose windows are shorter than that takes to return.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "diagnose/frames.h"

namespace millrace::diagnose {

struct Finding;
struct Study;

struct SlowerOutside {
    double more_ms = 0;              ///< per step
    std::uint32_t place = kNoPlace;  ///< at which the main thread spends most of that; none: nowhere in particular
    bool loads = false;              ///< it loads data there ...
    bool waits = false;              ///< ... asleep, until others have made them
    double loading_ms = 0;           ///< per step, of more_ms
    std::size_t samples = 0;         ///< outside of windows, at that place
};

/// Absent where windows are about as slow as the rest. The GPU has no more work in a step outside of them, so it idles for all of
/// more_ms.
std::optional<SlowerOutside> slower_outside(const Study& study);

/// The same in words.
std::string remark_of(const SlowerOutside& outside, const Study& study, std::span<const Finding> findings);

}  // namespace millrace::diagnose
