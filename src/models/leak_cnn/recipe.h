#pragma once
// The leak detector's keys in a recipe.

#include "models/leak_cnn/leak_cnn.h"

namespace millrace::models {

base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields);

}  // namespace millrace::models
