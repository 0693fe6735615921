#pragma once
// How often would chance alone part two sides as far as they are? And how far apart do blocks of one run lie, and runs of one
// program, which no block within a run shows? With several recordings of a side that is measured. With one of each it is assumed:
// what a GPU computes takes the same time in every process, but a core is faster in one than in the next (others use the machine,
// too), and so is memory, by where it happens to lie.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::diagnose {

/// The upper one of two in the middle; of none `otherwise`.
template <class Value>
Value median_of(std::vector<Value> values, Value otherwise = {}) {
    if (values.empty()) return otherwise;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Between neighbours by their distance; of one value at least.
double quantile(std::vector<double> values, double q);

/// From 1; equal values share the mean of their ranks.
std::vector<double> midranks(std::span<const double> values);

/// Of a test on ranks: chance deals the same values to two sides.
struct PermutationSettings {
    std::size_t most_exact = 60;  ///< values of both sides together up to which every permutation counts; beyond, shuffles
    std::uint64_t shuffles = 20'000, seed = 1;
};

struct PermutationResult {
    double p = 1;  ///< two-sided, of the rank sum
    bool exact = false;
};
PermutationResult permutation_test(std::span<const double> before, std::span<const double> after,
                                   const PermutationSettings& settings);

/// The smallest p that so many values on the two sides can give; 1 when a side has none.
double smallest_p(std::size_t before, std::size_t after);

/// How often Student's t with so many degrees of freedom (any positive number) lies at least as far from 0 as `t`.
double student_p(double t, double freedom);

/// The t, up to 1000, for which student_p gives `p`.
double student_t(double p, double freedom);

/// A run by the speeds of its blocks.
using Speeds = std::vector<double>;

/// Whether neighbouring blocks are more alike than chance makes them.
bool neighbours_are_alike(const Speeds& before, const Speeds& after);
/// Chance of a change as large as that between equal runs, by the spread within each (Welch).
double spread_p(const Speeds& before, const Speeds& after);
/// Half of the blocks lie closer to the median than this says, as a standard deviation: pauses do not count, as they do not for
/// the median, and be it that every third block has one.
double spread_of(const Speeds& speeds);
/// What runs may differ by where blocks within one differ by its spread. Nothing else is known of runs without a breakdown; of
/// others CompareSettings::run_spread says what sets processes apart, and what is left to fear is a slow change that a run shows
/// a part of. Where its quarters differ by less than blocks do, most of the variation is not slow. Four quarters are few, so
/// twice their standard deviation counts, and never less than as if eight blocks of the run were independent.
double unrest_of(const Speeds& speeds, bool has_breakdown);

/// What several recordings tell.
struct RunTest {
    double change = 0;                       ///< of the mean of the recordings' median speeds (logarithms)
    double change_low = 0, change_high = 0;  ///< 95 % interval
    double p = 1;                            ///< of a t test on those medians, with one spread for both sides
    double spread = 0;                       ///< standard deviation of recordings of one side, as a share of speed
};

/// `before` and `after`: the median speed of each recording; one at least on each side, three in all.
RunTest test_runs(const Speeds& before, const Speeds& after);

}  // namespace millrace::diagnose
