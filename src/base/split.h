#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace millrace::base {

/// What lies between the marks, which may be nothing: one part more than there are marks. "a,,b" by ',' is "a", "" and "b".
std::vector<std::string> split(std::string_view text, char mark);

}  // namespace millrace::base
