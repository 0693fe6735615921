#pragma once
// What was watched, as a picture: self-contained SVG for light and dark pages. Its size is bounded however long the watch was.

#include <string>

#include "report/watch_record.h"

namespace millrace::report {

/// Panels of GPU activity, power and temperature for each GPU, memory, CPU. Where samples were missed or a reading was absent the
/// lines have gaps. `subject` says what was watched: the command, or nothing.
std::string plot_svg(const WatchRecord& record, const std::string& subject);

}  // namespace millrace::report
