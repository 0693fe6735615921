#include "base/version.h"

namespace millrace::base {
const char* version() { return "0.1.0"; }

std::string compiler() {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
    return std::string("gcc ") + __VERSION__;
#else
    return "unknown";
#endif
}
}  // namespace millrace::base
