#pragma once
#include <nlohmann/json_fwd.hpp>

#include "ui/run_summary.h"

namespace millrace::ui {

/// A summary for programs: `millrace runs --json` and the page. What is not known is left out, and the recipe unless wanted.
nlohmann::ordered_json run_json(const RunSummary& run, bool with_recipe = true);

}  // namespace millrace::ui
