#include "base/version.h"

namespace millrace::base {
const char* version() { return "0.1.0"; }
}  // namespace millrace::base
