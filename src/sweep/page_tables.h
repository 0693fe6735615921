#pragma once
// The parts of the page that are tables and bars.

#include <string>

#include "sweep/page_view.h"

namespace millrace::sweep {

// HTML of sections.
/// The finalists with the spread of their trials; empty without finalists.
std::string finalists_section(const PageView& view);
std::string importance_section(const PageView& view);
/// All trials, best first; empty without trials.
std::string trials_section(const PageView& view);

}  // namespace millrace::sweep
