#pragma once
// Measures the gradient noise scale of a recipe in a short training.

#include <string>

#include "base/clock.h"
#include "tune/candidates.h"
#include "tune/noise_scale.h"

namespace millrace::tune {

struct NoiseRun {
    NoiseScale scale;
    std::string reason;       ///< why the scale is not known; empty: it is
    std::uint64_t steps = 0;  ///< trained
    std::size_t points = 0;
    std::int64_t small = 0, big = 0;  ///< batch sizes of the norms
};

/// Trains the recipe and stops at points along the way, where two engines whose weights stay take the norms of small and of big
/// batches. Big batches are accumulated from small ones, so that norms over the rows of a batch see the same number of rows in
/// both.
NoiseRun measure_noise(const TrainingRequest& request, const base::Clock& clock);

/// The least time that measure_noise() needs when a step of the recipe takes `step_seconds`.
double least_noise_seconds(const Facts& facts, double step_seconds);

}  // namespace millrace::tune
