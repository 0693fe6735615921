#pragma once
// How often would chance alone part two sides as far as they are?

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace millrace::diagnose {

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

}  // namespace millrace::diagnose
