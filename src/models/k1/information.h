#pragma once
// How unevenly something is spread, and how much a choice says about a label, beside the same with shuffled labels.

#include <cstdint>
#include <vector>

namespace millrace::models {

/// Gini's coefficient: 0 when all are alike, (n - 1) / n when one has all; 0 when there is nothing to spread.
double gini(std::vector<double> values);

/// Mutual information in bits of a step's label and of whether the step was chosen. By label: steps that were chosen, and all.
double information(const std::vector<double>& chosen, const std::vector<double>& seen);

struct Shuffled {
    double mean = 0, high = 0;  ///< bits; `high`: 95 of 100 are at most that
    double p = 1;               ///< share of shuffles with at least the information that was measured, the measured one counted
};
/// The same when the labels are dealt to the steps anew: `draws` times, whole counts. Chosen steps of a label then follow the
/// hypergeometric distribution, so the steps themselves need not be kept.
Shuffled shuffled_information(const std::vector<double>& chosen, const std::vector<double>& seen, std::uint64_t seed, int draws);

}  // namespace millrace::models
