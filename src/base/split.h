#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::base {

/// What lies between the marks, which may be nothing: one part more than there are marks. "a,,b" by ',' is "a", "" and "b".
inline std::vector<std::string> split(std::string_view text, char mark) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(mark, begin), text.size());
        parts.emplace_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

}  // namespace millrace::base
