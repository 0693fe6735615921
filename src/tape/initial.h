#pragma once
// How members start: parameters drawn from a seed and the tensors' names, groups as declared.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tape/store.h"

namespace millrace::tape {

/// One matrix of a parameter, [rows, cols]. `member` chooses among Init::members.
std::vector<float> draw_matrix(const Parameter& parameter, int matrix, std::size_t member, std::uint64_t seed);

/// The 16-bit copy of parameters, where the precision has one.
struct Copies {
    Precision precision = Precision::f32;
    std::span<std::uint16_t> values = {};
    /// Rounds values[at, at + from.size()).
    void round(std::span<const float> from, std::size_t at) const;
};

/// One member of the arena of trained parameters, or of `fixed` ones: every parameter at its offset, zeros between them, and as
/// much of its copy if one is given. The numbers do not depend on how many threads draw: at most `threads`, 0: one per core, and
/// fewer for small models.
void draw_slice(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed,
                std::span<float> slice, const Copies& copies = {}, unsigned threads = 0);

constexpr std::int64_t kDrawnPart = std::int64_t{1} << 22;  ///< elements
/// The same for a slice of `width` elements in parts, for those who have no room for a second one: `write` gets each with the
/// element where it begins. A part has at most kDrawnPart elements, but for a larger matrix that must be drawn as a whole.
void draw_parts(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed, std::int64_t width,
                const std::function<void(std::int64_t begin, std::vector<float>& part)>& write);

/// A group before the first step.
ops::GroupState initial_state(const ParameterGroup& group);

}  // namespace millrace::tape
