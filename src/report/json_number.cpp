#include "report/json_number.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace millrace::report {

Json number(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(nullptr); }

}  // namespace millrace::report
