#pragma once
// The step of a program that marks none: the length at which its sequence of launches repeats.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace millrace::record {

struct Period {
    std::size_t length = 0;  ///< elements from one step to the next
    double match = 0;        ///< share of elements that return after so many
};

/// The period of a sequence, found when it came three times in a row somewhere in it. Every kind of element (and of pair of
/// neighbours) counts the same however often it comes, so that an inner loop over layers does not pass for the step: what comes
/// once per step speaks against it. Elements may come or go in some periods (logging), others may vary, and anything may stand
/// before, between or behind (start-up, evaluation), as long as what repeats has more kinds than the rest. Two periods are no
/// better than one. Elements are hashes of what was launched.
/// Takes O(n) time and memory with a factor of some dozens.
std::optional<Period> find_period(std::span<const std::uint64_t> sequence);

/// A place in the period that comes once in it, and everywhere it comes: starts of steps, ascending, also around stretches that
/// are no steps (an evaluation). `weight` has one entry per element; of places that qualify that with the greatest sum of weights
/// is taken (the longest pause before a launch, say). Empty where no place comes once.
std::vector<std::size_t> find_starts(std::span<const std::uint64_t> sequence, Period period, std::span<const double> weight);

/// Programs that launch their step as one graph do a few steps launch by launch before. Those have more kinds of elements than
/// all that follows and would pass for the step: the element behind them; 0 where there is nothing of the kind. `graphs` has one
/// entry per element, 1 for a graph; what repeats with graphs must be at least half of the sequence, or have come twenty times
/// and twice as often as the steps before.
std::size_t rehearsal_end(std::span<const std::uint64_t> sequence, std::span<const char> graphs);

}  // namespace millrace::record
