#pragma once
// Figures in the JSON that reports print.

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace millrace::report {

using Json = nlohmann::ordered_json;

/// null where there is no value or none that is finite.
inline Json number(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(nullptr); }

}  // namespace millrace::report
