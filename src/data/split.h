#pragma once
// Which samples train and which select the model.

#include <cstdint>
#include <vector>

namespace millrace::data {

/// Positions in the training files: what is trained on and what selects the model.
struct Split {
    std::vector<std::uint32_t> training;
    std::vector<std::uint32_t> validation;
};

/// Cuts `count` samples by the random order of (`seed`, epoch 0): its first floor(count * fraction) positions validate, the rest
/// train. `fraction` in [0, 1).
Split split_validation(std::uint32_t count, double fraction = 0.1, std::uint64_t seed = 42);

}  // namespace millrace::data
