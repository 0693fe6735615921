#pragma once
// Figures in the JSON that reports print.

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace millrace::report {

using Json = nlohmann::ordered_json;

/// null where there is no value or none that is finite.
Json number(const std::optional<double>& value);

}  // namespace millrace::report
