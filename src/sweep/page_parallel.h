#pragma once
// Parallel coordinates: one axis for each parameter and objective, one line for each trial.

#include <string>

#include "sweep/page_view.h"

namespace millrace::sweep {

/// HTML of the section; empty without trials.
std::string parallel_section(const PageView& view);

}  // namespace millrace::sweep
