#pragma once
namespace millrace::base {
/// The version of this build, "major.minor.patch".
const char* version();
}  // namespace millrace::base
