#pragma once
// How far blocks of one run lie apart, and what that says about runs; and how far runs of one program do, which no block within a
// run shows. With several recordings of a side that is measured. With one of each it is assumed: what a GPU computes takes the
// same time in every process, but a core is faster in one than in the next (others use the machine, too), and so is memory, by
// where it happens to lie.

#include <optional>
#include <span>
#include <vector>

#include "diagnose/compare/compare.h"

namespace millrace::diagnose {

using Paces = std::vector<Pace>;

std::vector<double> speeds_of(const Paces& paces);
/// Between neighbours by their distance; of one value at least.
double quantile(std::vector<double> values, double q);

/// Whether neighbouring blocks are more alike than chance makes them.
bool neighbours_are_alike(const Paces& before, const Paces& after);
/// Chance of a change as large as that between equal runs, by the spread within each (Welch).
double spread_p(const Paces& before, const Paces& after);
/// Half of the blocks lie closer to the median than this says, as a standard deviation: pauses do not count, as they do not for
/// the median, and be it that every third block has one.
double spread_of(const Paces& paces);
/// What runs may differ by where blocks within one differ by its spread. Nothing else is known of runs without a breakdown; of
/// others run_spread says what sets processes apart, and what is left to fear is a slow change that a run shows a part of. Where
/// its quarters differ by less than blocks do, most of the unrest is not slow. Four quarters are few, so twice their standard
/// deviation counts, and never less than as if eight blocks of the run were independent.
double unrest_of(const Paces& paces, bool has_breakdown);

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
