#pragma once
// Finds how a recipe runs fastest on this machine, and what another batch would mean for the time to a target. A table for
// people, JSON with stable keys, and the recipe that it recommends.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/recipe.h"
#include "tune/noise_scale.h"
#include "tune/race.h"
#include "tune/target_run.h"

namespace millrace::tune {

struct TuneOptions {
    double seconds = 60;          ///< for all; `verify` takes as long again
    bool batch_free = false;      ///< the batch may change; else it is reported what another one would cost
    bool precision_free = false;  ///< also where the recipe names a precision
    bool verify = false;          ///< the time to target is measured in any case
    /// What is done now, and how much of the time has gone, 0 to 1. From the calling thread.
    std::function<void(const std::string& what, double share)> progress = {};
};

/// One way that was tried.
struct Row {
    std::string stage;           ///< "settings", "rows", "loader" or "batch": ways of one stage were timed in turns
    Settings settings;           ///< over those chosen in the stages before
    std::string failure;         ///< why it was not timed; empty: it was
    bool own = false;            ///< as the recipe, or the stages before, have it
    bool chosen = false;         ///< of its stage
    std::int64_t step_rows = 0;  ///< samples of a step of one member
    double samples_per_second = 0, step_seconds = 0;
    Span ratio{1, 1, 1};      ///< its time per sample over that of the fastest of its stage
    Span over_own{1, 1, 1};   ///< and over that of the recipe's batch; stage "batch"
    std::int64_t memory = 0;  ///< bytes that setting up took on the device
    double wait_share = 0;    ///< of a step, for data
    std::optional<double> joules_per_sample = {};
    std::optional<Span> time_to_target = {};  ///< over that of the recipe's batch; stage "batch", where it is known
};

struct Report {
    std::string recipe;           ///< its place
    std::string device, machine;  ///< "cpu: 2 threads, ...", the host's name and processor
    std::string unit;             ///< what a sample is: "images"
    bool streamed = false;
    std::int64_t step_rows = 0;  ///< of the recipe
    std::vector<Row> rows;
    NoiseRun noise;
    std::optional<TargetRun> targets;      ///< absent: the time to target is predicted from the noise scale
    std::optional<double> reader_seconds;  ///< that one reader takes for a sample; streams
    Settings changes;                      ///< recommended, over the recipe
    std::vector<std::string> reasons;      ///< of each, in words
    double speedup = 1;                    ///< samples per second with all changes over those of the recipe as it is
    double seconds = 0;                    ///< that all of this took
};

/// An error when the recipe itself cannot run. Whatever else fails is a row or a reason.
base::Result<Report> tune(const base::Recipe& recipe, const TuneOptions& options,
                          const base::Clock& clock = base::SteadyClock::shared());

std::string report_text(const Report& report);
/// Keys: docs/tune.md.
std::string report_json(const Report& report);

/// The first words of every recipe that tuned_recipe() writes.
constexpr const char* kTunedMark = "# Tuned by millrace";
/// The keys of `recipe` that are not as by default, with the changes, as TOML; machine, `date` and reasons are comments.
base::Result<std::string> tuned_recipe(const base::Recipe& recipe, const Report& report, const std::string& date);

}  // namespace millrace::tune
