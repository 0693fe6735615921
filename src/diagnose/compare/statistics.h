#pragma once
// How often would chance alone part two sides as far as they are?

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
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

/// Of (value, weight): the first value up to which half of the weight lies; of none 0.
double weighted_median(std::vector<std::pair<double, double>> values);

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
