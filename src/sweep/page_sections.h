#pragma once
// The sections of the page, as HTML; empty where there is nothing to show.

#include <string>

#include "sweep/page_view.h"

namespace millrace::sweep {

// Pictures with two axes.
/// The best value so far over trials and over time, for each objective.
std::string history_section(const PageView& view);
/// The trials that no other is better than in both of two objectives.
std::string front_section(const PageView& view);
/// What the best ten trials reported, for each objective.
std::string curves_section(const PageView& view);
/// Parallel coordinates: one axis for each parameter and objective, one line for each trial.
std::string parallel_section(const PageView& view);

// Tables and bars.
/// The finalists with the spread of their trials.
std::string finalists_section(const PageView& view);
std::string importance_section(const PageView& view);
/// All trials, best first.
std::string trials_section(const PageView& view);

}  // namespace millrace::sweep
