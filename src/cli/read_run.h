#pragma once
// What `diagnose` and `compare` share: reading a run with its progress on the terminal, and how text is to look there.

#include <string>

#include "base/result.h"
#include "diagnose/timeline/timeline.h"
#include "report/diagnosis_forms.h"

namespace millrace::cli {

base::Result<diagnose::Timeline> read_run_with_progress(const std::string& path);

/// Colour on a terminal unless NO_COLOR forbids it; blocks where the locale has them.
report::TextOptions text_options();

}  // namespace millrace::cli
