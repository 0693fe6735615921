#pragma once
// Keys of a recipe that another key leaves without a meaning.

#include <string>
#include <vector>

#include "base/recipe.h"

namespace millrace::train {

/// A line for each key that is not at its default although nothing reads it: data.rotate without data.augment.
std::vector<std::string> idle_keys(const base::Recipe& recipe);

}  // namespace millrace::train
