#pragma once
// Waiting for data that windows do not show. Samples are taken all through the run, so they are the unbiased estimate of what a
// step waits; windows are too few to catch a loader that is late every twenty seconds.

#include <cstdint>
#include <optional>
#include <string>

#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {

struct Study;

struct UnseenLoading {
    double ms = 0;                   ///< per step, more than windows show; a step takes at least as much longer outside of them
    std::uint32_t place = kNoPlace;  ///< at which most of it is loaded
    bool waits = false;              ///< asleep there, until others have made the data
    std::size_t samples = 0;         ///< outside of windows, loading
};

/// Absent where windows show it all, or nothing is known of the rest.
std::optional<UnseenLoading> unseen_loading(const Study& study);

/// The same in words.
std::string remark_of(const UnseenLoading& unseen, const Study& study);

}  // namespace millrace::diagnose
