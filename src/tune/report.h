#pragma once
// What a tuning says: a table for people, JSON with stable keys, and the recipe that it recommends.

#include <string>

#include "tune/tune.h"

namespace millrace::tune {

std::string report_text(const Report& report);
/// Keys: docs/tune.md.
std::string report_json(const Report& report);

/// The first words of every recipe that tuned_recipe() writes.
constexpr const char* kTunedMark = "# Tuned by millrace";
/// The keys of `recipe` that are not as by default, with the changes, as TOML; machine, `date` and reasons are comments.
base::Result<std::string> tuned_recipe(const base::Recipe& recipe, const Report& report, const std::string& date);

}  // namespace millrace::tune
