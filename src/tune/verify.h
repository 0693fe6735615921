#pragma once
// Measures directly how many steps larger batches save: lanes that go on from the same weights with 1, 2, 4 and 8 times the rows
// of a step until each has reached the same loss.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tune/candidates.h"

namespace millrace::tune {

struct VerifyLane {
    std::int64_t times = 1;       ///< rows of a step over those of the recipe
    std::optional<double> steps;  ///< to the target, the better of two learning rates; absent: not reached in time
    double rate = 1;              ///< factor on the learning rate of the better one
};

struct VerifyResult {
    std::string failure;       ///< why there is none; empty: there is one
    double target = 0;         ///< training loss
    std::uint64_t before = 0;  ///< steps that all lanes share
    std::vector<VerifyLane> lanes;
};

struct VerifyRequest {
    const base::Recipe& recipe;
    Settings settings;
    Facts facts;
    double step_seconds = 0;
    std::chrono::nanoseconds deadline{};
    std::function<void(double share)> progress = {};
};

/// Larger batches are accumulated. Each lane trains twice at once, with the recipe's learning rate and with one times the square
/// root of the factor on the batch (SGD: times the factor), without a schedule.
VerifyResult verify(const VerifyRequest& request, const base::Clock& clock);

/// The first place, in samples from the beginning, at which the mean loss of the last `window` samples is at most `target`; half
/// a window is taken off, which the mean lags behind. `losses` are means of consecutive steps of `rows` samples.
std::optional<double> samples_to_target(const std::vector<double>& losses, std::int64_t rows, std::int64_t window, double target);

}  // namespace millrace::tune
