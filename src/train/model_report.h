#pragma once
// What a recipe's model is made of, layer by layer (`millrace models show`), and what a training step of it does, kernel by
// kernel, before it is run (`millrace plan`): as JSON, or a table for people.

#include <string>

#include "train/setup.h"

namespace millrace::train {

std::string model_report(const Setup& setup, const std::string& recipe, bool as_json);

/// Of the regular step. `timed` runs every kernel, which leaves parameters and counters as those runs leave them.
base::Result<std::string> plan_report(const Setup& setup, const std::string& recipe, bool timed, bool as_json);

}  // namespace millrace::train
