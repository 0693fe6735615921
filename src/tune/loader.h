#pragma once
// How many readers a streamed set needs.

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "tune/stepper.h"

namespace millrace::tune {

/// Seconds that one reader takes for a sample when nothing else limits it, page cache as it is. Reads for a second, or `longest`
/// where that is shorter.
base::Result<double> reader_seconds(const base::Recipe& recipe, const Settings& settings, std::chrono::nanoseconds longest,
                                    const base::Clock& clock);

/// Readers worth timing: ceil(samples per second x seconds of a reader for a sample), at most one per core, and one more than
/// that where there is a core, because the readers share cores with what they feed.
std::vector<std::int64_t> reader_threads(double samples_per_second, double reader_seconds, int cores);

}  // namespace millrace::tune
