#pragma once
#include <string>

namespace millrace::base {

/// The version of this build, "major.minor.patch".
inline const char* version() { return "0.1.0"; }

/// What built it: "gcc 12.2.0".
inline std::string compiler() {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
    return std::string("gcc ") + __VERSION__;
#else
    return "unknown";
#endif
}

}  // namespace millrace::base
