#pragma once
// Parameters of a space as Optuna keeps them: a name, a distribution as JSON and a number (of a choice its index). A parameter
// with an alternative is two of Optuna's: "NAME:or", a choice between the alternative and "range", and NAME in trials that chose
// the range.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "search/space.h"

namespace millrace::storage {

/// {"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}} and the like, letter by
/// letter as Optuna writes it. Of the range or choice alone.
std::string distribution_json(const search::Parameter& parameter);

/// Name and distribution of each of Optuna's parameters that this one becomes.
std::vector<std::pair<std::string, std::string>> distributions_of(const search::Parameter& parameter);

/// Name and number of those that a trial with this value has.
std::vector<std::pair<std::string, double>> numbers_of(const search::Parameter& parameter, double value);

/// Back from all numbers of a trial. Nothing: one is missing, or the value is none that the parameter can have.
std::optional<double> value_of(const search::Parameter& parameter, const std::map<std::string, double>& numbers);

/// Text as a JSON string with its quotes, ASCII only.
std::string json_text(const std::string& text);
/// Nothing when it is no JSON string.
std::optional<std::string> text_of_json(const std::string& json);

/// A list of numbers as JSON; NaN, Infinity and -Infinity bare, as Python reads and writes them.
std::string json_numbers(const std::vector<double>& numbers);
/// Nothing when it is no list of numbers.
std::optional<std::vector<double>> numbers_of_json(const std::string& json);
/// One number as in json_numbers.
std::string json_number(double number);

}  // namespace millrace::storage
