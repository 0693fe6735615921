#pragma once
// From a recipe to an engine that is ready to run.

#include <functional>
#include <memory>
#include <string>

#include "base/recipe.h"
#include "data/data_set.h"
#include "train/engine.h"
#include "train/run_settings.h"
#include "train/run_state.h"

namespace millrace::train {

struct Setup {
    RunSettings settings;
    data::DataIdentity data;
    std::string unit;                ///< what a sample is: "images"
    std::vector<std::string> notes;  ///< about the data, for people
    std::string loading;             ///< resident or streamed, and why; empty where there is no choice
    std::string device;              ///< "cpu: 2 threads"
    std::string precision;           ///< of products' operands: "bf16", "tf32"
    int threads = 1;                 ///< of the CPU backend, or of the host
    std::unique_ptr<Engine> engine;
};

/// Loads the data, chooses the device, builds the model and everything it needs. `training` false leaves out what only training
/// needs. `micro_batch` is taken where the recipe leaves it open (0: chosen by what fits). `stored` is what the checkpoint to go
/// on from says about the data, `forms` what it says about kernels (ops::Backend::forms()).
/// `class_reports`: see EngineOptions.
using SourceAdapter = std::function<std::unique_ptr<data::BatchSource>(std::unique_ptr<data::BatchSource>)>;
base::Result<Setup> set_up(const base::Recipe& recipe, bool training, const SourceAdapter& adapt = {},
                           std::int32_t micro_batch = 0, const data::StoredData& stored = {}, bool class_reports = false,
                           const std::vector<std::string>& forms = {});

/// Where the samples come from and how many there are: "digits: 54,000 images to train on, 6,000 to select by, 10,000 to test"
std::string data_text(const data::DataIdentity& data, const std::string& unit);

}  // namespace millrace::train
