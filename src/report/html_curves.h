#pragma once
// What the machine did over the run: curves of GPU and CPU, memory and power.

#include <string>

#include "diagnose/timeline/timeline.h"

namespace millrace::report {

/// HTML of the section; empty when nothing was sampled. Bounded however long the run was. Where a reading is absent the curves
/// have gaps.
std::string html_curves(const diagnose::Timeline& timeline);

}  // namespace millrace::report
