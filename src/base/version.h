#pragma once
#include <string>

namespace millrace::base {
/// The version of this build, "major.minor.patch".
const char* version();
/// What built it: "gcc 12.2.0".
std::string compiler();
}  // namespace millrace::base
