#pragma once
// Measures how many samples each batch needs to the same losses: all train from the start, with several seeds and learning rates,
// and are evaluated along the way.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tune/candidates.h"
#include "tune/race.h"

namespace millrace::tune {

/// Factors on the learning rate that goes with a batch: the recipe's times the square root of the batch over the recipe's (SGD:
/// times that ratio).
constexpr double kTargetRates[] = {1, 0.5, 2, 4};
constexpr std::size_t kTargetSeeds = 8, kTargetMembers = kTargetSeeds * std::size(kTargetRates);

/// Of one batch, at points of its training: member rate * kTargetSeeds + seed.
struct LossCurves {
    std::vector<double> samples;  ///< trained on by then, ascending
    std::vector<std::array<double, kTargetMembers>> losses;
};

struct TargetBatch {
    std::int64_t rows = 0;        ///< of a step
    std::string failure;          ///< why nothing is known of it; empty: it is
    std::optional<Span> samples;  ///< to the same losses, over those of the recipe's batch
    double rate = 1;              ///< best factor on the recipe's learning rate
};
/// Sets `samples` and `rate` (one of kTargetRates). Targets are the losses of `own` at the first rate from a sixth of its
/// training on; each batch has the rate that reaches a target first. The interval (95 %) holds the ratio of each third of the
/// targets, by leaving out one seed at a time. Not set where fewer than six targets were reached.
void compare_curves(const LossCurves& own, const LossCurves& other, TargetBatch& batch);

struct TargetRun {
    std::string reason;                ///< why there is none; empty: there is one
    bool validation = false;           ///< losses are those of validation, else of training
    std::int64_t samples = 0;          ///< that every batch trained on
    std::vector<TargetBatch> batches;  ///< as requested
    std::vector<LossCurves> curves;    ///< of each; empty where it could not be opened
};
/// Trains for the recipe's length, or as far as the time goes, without a schedule. `batches` begin with the recipe's.
TargetRun measure_targets(const TrainingRequest& request, const std::vector<BatchCandidate>& batches, const base::Clock& clock);

}  // namespace millrace::tune
