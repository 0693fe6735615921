#pragma once
// How far blocks of one run lie apart, and what that says about runs.

#include <vector>

#include "diagnose/compare.h"

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

}  // namespace millrace::diagnose
