#pragma once
// The gradient noise scale B_noise = tr(Sigma) / |G|^2 (McCandlish et al. 2018, appendix A.1), from squared gradient norms at two
// batch sizes: E |g_B|^2 = |G|^2 + tr(Sigma) / B. A batch well below it saves no time per sample, one well above it saves no
// steps: steps to a target are proportional to 1 + B_noise / B.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tune/candidates.h"
#include "tune/race.h"

namespace millrace::tune {

constexpr std::size_t kLeastPoints = 8;  ///< below, B_noise is not known

/// At one moment of training: means of the squared norm over several batches of either size, at the same weights.
struct NormPair {
    double small = 0, big = 0;
};

struct NoiseScale {
    Span samples;                  ///< B_noise with an interval of 95 %
    std::vector<double> segments;  ///< B_noise of consecutive parts of the training
    bool known = false;            ///< the interval is no wider than a factor of 2
};

/// `points` are in the order of training, at the batch sizes `small` < `big`. Numerator and denominator are averaged over each of
/// four parts of the training, and B_noise is the mean over these parts, because steps add up: a steep beginning with its large
/// gradients does not outweigh the rest. The interval comes from drawing points anew within each part.
NoiseScale noise_scale(std::span<const NormPair> points, double small, double big, std::uint64_t seed = 1);

/// Time to the same loss with steps of `batch` samples over that of steps of `own_batch`. `sample_time` is the time per sample of
/// the one over that of the other. The interval allows for what the formula does not know: B_noise from its least to its greatest
/// part of the training, because a target may lie anywhere in it; at least a factor of 3 either way, because its relation to
/// steps is an empirical one; and a tenth of the result for norms, schedules and learning rates.
Span time_to_target(const NoiseScale& noise, double batch, double own_batch, const Span& sample_time = {1, 1, 1});

/// The scale as a short training of a recipe measured it.
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
