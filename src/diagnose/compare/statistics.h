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
struct PermutationResult {
    double p = 1;        ///< two-sided, of the rank sum
    bool exact = false;  ///< by every permutation; else, of many values, by the normal distribution
};
PermutationResult permutation_test(std::span<const double> before, std::span<const double> after);

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

/// A t test on logarithms of speeds.
struct SpeedTest {
    double change = 0;  ///< of the logarithm of speed
    double reach = 0;   ///< 95 % interval: so far to both sides
    double p = 1;
    double spread = 0;  ///< standard deviation of recordings of one side, as a share of speed
};
/// Of blocks, of which each side has two at least, by the spread within each side (Welch).
SpeedTest test_blocks(const Speeds& before, const Speeds& after);
/// Of the median speed of each recording, with one spread for both sides; one at least on each side, three in all.
SpeedTest test_runs(const Speeds& before, const Speeds& after);

/// Half of the blocks lie closer to the median than this says, as a standard deviation: pauses do not count, as they do not for
/// the median, and be it that every third block has one.
double spread_of(const Speeds& speeds);
/// What runs may differ by where blocks within one differ by its spread. Nothing else is known of runs without a breakdown; of
/// others CompareSettings::run_spread says what sets processes apart, and what is left to fear is a slow change that a run shows
/// a part of. Where its quarters differ by less than blocks do, most of the variation is not slow. Four quarters are few, so
/// twice their standard deviation counts, and never less than as if eight blocks of the run were independent.
double unrest_of(const Speeds& speeds, bool has_breakdown);

}  // namespace millrace::diagnose
