#pragma once
// Which part of a training step each record belongs to.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/op.h"

namespace millrace::tape {

using ops::Phase;
constexpr int kPhaseCount = 5;
constexpr std::array<const char*, kPhaseCount> kPhaseNames{"data", "forward", "loss", "backward", "optimizer"};

/// The phase of each record of a program. Operators that serve in several (sums, copies, fills) belong to the forward pass before
/// the first operator that only the backward pass has, to the backward pass from there to the update; so do operators of the
/// forward pass that run again in the backward pass.
std::vector<Phase> phases_of(std::span<const ops::Record> records);

}  // namespace millrace::tape
