#pragma once
// Data for benchmarks: random, resident, of the sizes that the peers have.

#include <cstdint>
#include <memory>

#include "data/batch_source.h"
#include "models/registry.h"

namespace millrace::bench {

/// 54,000 images, 5,021 pairs of unit vectors, 400,000 windows of recordings or 32,000 of text, less what a last batch would
/// lack, so that every step has the same size; a batch larger than that is given its samples. All of them are for training.
std::unique_ptr<data::BatchSource> random_data(data::DataKind kind, std::int32_t batch);

}  // namespace millrace::bench
