#pragma once
// How members start: parameters drawn from a seed and the tensors' names, groups as declared.

#include <cstdint>
#include <span>
#include <vector>

#include "tape/store.h"

namespace millrace::tape {

/// One matrix of a parameter, [rows, cols]. `member` chooses among Init::members.
std::vector<float> draw_matrix(const Parameter& parameter, int group, std::size_t member, std::uint64_t seed);

/// One member of the arena of trained parameters, or of `fixed` ones: every parameter at its offset, zeros between them. The
/// numbers do not depend on how many threads draw; large models take all cores.
void draw_slice(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed,
                std::span<float> slice);

/// A group before the first step.
ops::GroupState initial_state(const Group& group);

/// The 16-bit copy of parameters; `precision` is one that has copies.
void round_copies(Precision precision, std::span<const float> values, std::span<std::uint16_t> copies);

}  // namespace millrace::tape
