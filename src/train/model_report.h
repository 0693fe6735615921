#pragma once
// What a recipe's model is made of, layer by layer: `millrace models show`.

#include <string>
#include <utility>
#include <vector>

#include "train/setup.h"

namespace millrace::train {

struct LayerReport {
    std::string name;                                        ///< "experts.0.4"
    std::int32_t copies = 1;                                 ///< equal layers side by side
    std::vector<std::pair<std::string, std::string>> parts;  ///< "weight": "64 x 128", of one copy
    std::int64_t parameters = 0;                             ///< of all copies; those that are never trained are left out
    std::string output;                              ///< of its forward pass: "128 x 64" rows and columns; empty: not known
    std::int64_t forward_flops = 0, step_flops = 0;  ///< of its matrix products: a forward pass, a training step
};

struct ModelReport {
    std::string recipe, model, device, precision;
    std::int32_t batch = 0, micro_batch = 0;
    std::int64_t trained = 0;  ///< parameters of one member
    int members = 1;
    MemoryNeeds memory;
    std::int64_t step_flops = 0;  ///< of the whole step, all members
    std::vector<LayerReport> layers;
};

ModelReport report_model(Setup& setup, const std::string& recipe);

std::string model_text(const ModelReport& report);
std::string model_json(const ModelReport& report);

}  // namespace millrace::train
