#pragma once
// The leak detector's keys in a recipe, and its entry in the registry.

#include "models/leak_cnn/leak_cnn.h"
#include "models/registry.h"

namespace millrace::models {

base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields);
Family leak_cnn_family();

}  // namespace millrace::models
