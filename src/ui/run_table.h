#pragma once
// `millrace runs`: summaries as a table or as JSON, filtered and sorted.

#include <string>
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

/// Rows in columns, for a terminal: long texts are cut, and control characters made harmless.
std::string columns_text(const std::vector<std::vector<std::string>>& rows);
std::string runs_text(const std::vector<RunSummary>& runs);
std::string runs_json(const std::vector<RunSummary>& runs);

}  // namespace millrace::ui
