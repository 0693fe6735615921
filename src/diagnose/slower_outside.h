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
    bool loads = false;              ///< it loads data there
    /// Per step, loading data: of more_ms, where it is most of that and sure, else 0. The GPU idles meanwhile: it has no more
    /// work in a step because it is not recorded.
    double loading_ms = 0;
    std::uint32_t loading_place = kNoPlace;
    bool waits = false;       ///< asleep there, until others have made the data
    std::size_t samples = 0;  ///< outside of windows, loading
};

/// Absent where windows are about as slow as the rest.
std::optional<SlowerOutside> slower_outside(const Study& study);

/// The same in words.
std::string remark_of(const SlowerOutside& outside, const Study& study, std::span<const Finding> findings);

}  // namespace millrace::diagnose
