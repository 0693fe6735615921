#pragma once
// Tables of runs, as text and as JSON: `millrace runs`, filtered and sorted, and `millrace compare`, where two trainings differ.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ui/run_summary.h"

namespace millrace::ui {

/// What a filter or an order names: a column of the table, or a key of the recipe ("optim.lr").
struct RunFilter {
    std::string key, value;
    char relation = '=';  ///< '=' (text: contains; a recipe's key: is), '<' or '>' (numbers)
};

/// "state=finished", "best>0.9", "optim.lr<0.01".
base::Result<RunFilter> parse_run_filter(const std::string& text);
bool fits(const RunSummary& run, const RunFilter& filter);

/// By a column or a recipe's key, numbers by their value; runs without one are last. An error where no run knows the key.
base::Status sort_runs(std::vector<RunSummary>& runs, const std::string& key, bool reverse);

/// For a terminal: long texts are cut, and control characters made harmless.
std::string runs_text(const std::vector<RunSummary>& runs);
std::string runs_json(const std::vector<RunSummary>& runs);

/// Both runs, when both are folders that `millrace train` wrote.
std::optional<std::pair<RunSummary, RunSummary>> two_trainings(const std::string& before, const std::string& after);
/// What they have in common and where they differ: recipes, scores, curves, speed.
std::string trainings_text(const RunSummary& before, const RunSummary& after);
nlohmann::ordered_json trainings_json(const RunSummary& before, const RunSummary& after);

}  // namespace millrace::ui
