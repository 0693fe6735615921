#pragma once
// What two trainings have in common and where they differ: recipes, scores, curves, speed.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "ui/run_summary.h"

namespace millrace::ui {

/// Both runs, when both are folders that `millrace train` wrote.
std::optional<std::pair<RunSummary, RunSummary>> two_trainings(const std::string& before, const std::string& after);

std::string trainings_text(const RunSummary& before, const RunSummary& after);
nlohmann::ordered_json trainings_json(const RunSummary& before, const RunSummary& after);

}  // namespace millrace::ui
