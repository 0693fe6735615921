#pragma once
// What a recipe, and a checkpoint where there is one, ask of samples.

#include <string>

#include "data/folder.h"
#include "data/sample_set.h"

namespace millrace::data {

struct SampleRequest {
    Path path;
    double validation = 0.1, test = 0.1;  ///< shares of what has no parts of its own
    std::uint64_t seed = 42;              ///< of the parts
    std::string size, resize = "fit", colour = "auto";
    std::string target, task = "auto", ignore;
    const Preparation* stored = nullptr;  ///< of a checkpoint; null: the data decides
};

/// Parts of `count` samples by a random order: the first floor(count * test) test, the next floor(count * validation) validate.
/// Adds `first` to each number.
void split_samples(SampleSet& set, std::int32_t first, std::int32_t count, double validation, double test, std::uint64_t seed);

/// The part of a sample that is known by its name alone: which others there are does not matter.
Part part_of_name(std::string_view name, const SampleRequest& request);

}  // namespace millrace::data
