#pragma once
// Data for benchmarks: random, resident, of the sizes that the peers have.

#include <memory>

#include "base/recipe.h"
#include "data/batch_source.h"
#include "data/fields.h"

namespace millrace::bench {

/// 54,000 images, 5,021 pairs of unit vectors, 400,000 windows of recordings or two million tokens of text in windows of
/// data.length, less what a last step of train.batch rows would lack, so that every step has the same size; a step larger than
/// that is given its samples. All of them are for training. Refuses a step of more than 2^31 - 1 tokens.
base::Result<std::unique_ptr<data::BatchSource>> random_data(const base::Recipe& recipe, data::DataKind kind);

}  // namespace millrace::bench
