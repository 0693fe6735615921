#pragma once
#include <nlohmann/json_fwd.hpp>

#include "ui/run_summary.h"

namespace millrace::ui {

/// A summary for programs: `millrace runs --json` and the page. What is not known is left out.
nlohmann::ordered_json run_json(const RunSummary& run);

}  // namespace millrace::ui
