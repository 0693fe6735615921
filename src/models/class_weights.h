#pragma once
// What a class counts in the training loss: train.class_weights.

#include <cstdint>
#include <vector>

#include "base/recipe.h"
#include "data/fields.h"

namespace millrace::models {

/// N / (classes with samples * n_c) for N samples, n_c of class c: the mean over all samples is 1. 1 for classes without any.
std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts);

/// Of "balanced" one for each class of the data's labels; all 1 where the data does not say how frequent they are, as when a
/// checkpoint will bring the weights. Empty: no class is weighted. Refuses "balanced" where a number is predicted.
base::Result<std::vector<double>> class_weights(const base::Recipe& recipe, const data::Fields& fields);

}  // namespace millrace::models
