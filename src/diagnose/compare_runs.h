#pragma once
// How far runs of one program lie apart, which no block within a run shows. With several recordings of a side that is measured.
// With one of each it is assumed: what a GPU computes takes the same time in every process, but a core is faster in one than in
// the next (others use the machine, too), and so is memory, by where it happens to lie.

#include <optional>
#include <span>

#include "diagnose/compare.h"

namespace millrace::diagnose {

/// Share of a step in which no GPU computes or communicates; 0 where that is not known.
double host_share(const CompareSide& side);

/// What several recordings tell.
struct RunTest {
    double change = 0;                       ///< of the mean of the recordings' median speeds (logarithms)
    double change_low = 0, change_high = 0;  ///< 95 % interval
    double p = 1;                            ///< of a t test on those medians, with one spread for both sides
    double spread = 0;                       ///< standard deviation of recordings of one side, as a share of speed
};

/// `before` and `after`: the median speed of each recording; one at least on each side, three in all.
RunTest test_runs(std::span<const double> before, std::span<const double> after);

}  // namespace millrace::diagnose
