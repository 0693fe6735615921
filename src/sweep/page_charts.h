#pragma once
// The pictures of the page that have two axes.

#include <string>

#include "sweep/page_view.h"

namespace millrace::sweep {

// HTML of sections; empty when there is nothing to draw.
/// The best value so far over trials and over time, for each objective.
std::string history_section(const PageView& view);
/// The trials that no other is better than in both of two objectives.
std::string front_section(const PageView& view);
/// What the best ten trials reported, for each objective.
std::string curves_section(const PageView& view);

}  // namespace millrace::sweep
