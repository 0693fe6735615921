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

/// The smallest length whose match is about as good as the best one's: inner loops (over layers) return less well than the whole
/// step, two steps no better than one. At least three repetitions must be there. Absent: nothing returns often enough.
/// Elements are hashes of what was launched. Takes O(n) time and memory with a factor of some dozens.
std::optional<Period> find_period(std::span<const std::uint64_t> sequence);

/// A place in the period that comes once in it, and everywhere it comes: starts of steps, ascending, also around stretches that
/// are no steps (an evaluation). `weight` has one entry per element; of places that qualify that with the greatest sum of weights
/// is taken (the longest pause before a launch, say). Empty where no place comes once.
std::vector<std::size_t> find_starts(std::span<const std::uint64_t> sequence, Period period, std::span<const double> weight);

}  // namespace millrace::record
