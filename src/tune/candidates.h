#pragma once
// What is worth trying for a recipe, before anything is timed. What does not fit the memory is refused by the engine's plan
// later.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/recipe.h"
#include "tune/stepper.h"

namespace millrace::tune {

/// A recipe and the machine that it runs on.
struct Facts {
    bool gpu = false;
    std::vector<std::string> precisions;  ///< that may be chosen, that of the recipe first
    int threads = 1, cores = 1;           ///< of the CPU: used by the recipe, there
    std::int64_t batch = 1, accumulate = 1, micro_batch = 1;
    std::int64_t samples = 1;       ///< to train on
    std::int64_t minimum_rows = 1;  ///< of a micro-batch
    bool couples_rows = false;      ///< rows that go through the model at once change what it computes

    [[nodiscard]] std::int64_t step_rows() const { return batch * accumulate; }
    [[nodiscard]] bool may_split() const { return !couples_rows; }
};
/// `stepper` runs the recipe as it is. `precision_free`: also where the recipe names one.
Facts facts_of(const base::Recipe& recipe, Stepper& stepper, bool precision_free);

/// Precisions of a GPU, threads of a CPU. The first changes nothing, as with those below.
std::vector<Settings> machine_candidates(const Facts& facts);
/// Rows that go through the model at once, for the same rows of a step.
std::vector<Settings> row_candidates(const Facts& facts);

struct BatchCandidate {
    std::int64_t rows = 0;  ///< of a step
    Settings settings;
    Settings split;  ///< the same in micro-batches that are known to fit; empty: there is no such way
};
/// Steps of an eighth to eight times the recipe's rows, the recipe's own and the nearest first, as far as the data goes. `facts`
/// has the micro-batch that was chosen.
std::vector<BatchCandidate> batch_candidates(const Facts& facts);

/// Seconds that one reader takes for a sample when nothing else limits it, page cache as it is. Reads for a second, or `longest`
/// where that is shorter.
base::Result<double> reader_seconds(const base::Recipe& recipe, const Settings& settings, std::chrono::nanoseconds longest,
                                    const base::Clock& clock);

/// Readers worth timing: ceil(samples per second x seconds of a reader for a sample), at most one per core, and one more than
/// that where there is a core, because the readers share cores with what they feed.
std::vector<std::int64_t> reader_threads(double samples_per_second, double reader_seconds, int cores);

/// What short trainings of a recipe are given, whatever they measure.
struct TrainingRequest {
    const base::Recipe& recipe;
    Settings settings;        ///< with which it trains
    Facts facts;              ///< with these settings
    double step_seconds = 0;  ///< of a step of the recipe
    std::chrono::nanoseconds deadline{};
    std::function<void()> progress;
};

}  // namespace millrace::tune
