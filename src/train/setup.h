#pragma once
// From a recipe to an engine that is ready to run.

#include <functional>
#include <memory>
#include <string>

#include "base/recipe.h"
#include "data/fields.h"
#include "data/load.h"
#include "train/engine.h"
#include "train/run_settings.h"
#include "train/run_state.h"

namespace millrace::train {

class Ranks;

struct Setup {
    RunSettings settings;
    data::DataIdentity data;
    std::string unit;                ///< what a sample is: "images"
    std::vector<std::string> notes;  ///< about the data, for people
    std::string loading;             ///< resident or streamed, and why; empty where there is no choice
    std::string device;              ///< "cpu: 2 threads"
    std::string precision;           ///< of products' operands: "bf16", "tf32"
    int threads = 1;                 ///< of the CPU backend, or of the host
    std::string ranks;               ///< how they share the run; empty: one process
    std::unique_ptr<Engine> engine;
};

using SourceAdapter = std::function<std::unique_ptr<data::BatchSource>(std::unique_ptr<data::BatchSource>)>;
struct SetUpOptions {
    SourceAdapter adapt = {};             ///< stands between the data set and the engine, when set
    std::int32_t micro_batch = 0;         ///< taken where the recipe leaves it open; 0: chosen by what fits
    data::StoredData stored = {};         ///< what the checkpoint to go on from says about the data
    bool class_reports = false;           ///< EngineOptions::class_reports
    std::vector<std::string> forms = {};  ///< what that checkpoint says about kernels (ops::Backend::forms())
    Ranks* ranks = nullptr;               ///< that train together, the recipe being of this rank's members; borrowed
    std::function<base::Result<data::LoadedData>()> load = {};  ///< in the place of loading data.path, when set
};
/// Loads the data, chooses the device, builds the model and everything it needs. `training` false leaves out what only training
/// needs.
base::Result<Setup> set_up(const base::Recipe& recipe, bool training, const SetUpOptions& options = {});

/// Where the samples come from and how many there are: "digits: 54,000 images to train on, 6,000 for validation, 10,000 to test"
std::string data_text(const data::DataIdentity& data, const std::string& unit);

}  // namespace millrace::train
