#pragma once
#include <string_view>

namespace millrace::io {

/// Whether JSON text opens more than 256 brackets within each other. The library writes documents out by recursion, so a hostile
/// one has to be refused before it comes to that; ours nest a handful.
bool nests_too_deep(std::string_view json);

}  // namespace millrace::io
