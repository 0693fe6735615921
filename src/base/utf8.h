#pragma once
#include <cstddef>
#include <string_view>

namespace millrace::base {

/// Bytes of the well-formed UTF-8 sequence that begins at `at` (below the text's size); 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// Where the first byte stands that belongs to no well-formed sequence; npos: the text is UTF-8.
std::size_t find_broken_utf8(std::string_view text);

}  // namespace millrace::base
