#pragma once
// "Did you mean": the valid name closest to a mistyped one.

#include <span>
#include <string>
#include <string_view>

namespace millrace::base {

/// Number of single-character insertions, deletions, substitutions and swaps of neighbours between two words.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, or empty when none is close enough to be what was meant. A candidate whose last dotted part
/// is the word also counts ("epochs" for "train.epochs").
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

}  // namespace millrace::base
