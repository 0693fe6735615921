#include "report/view_line.h"

#include <algorithm>

namespace millrace::report {
namespace {

constexpr const char* kCodes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31;1m"};

/// Of ASCII, and those terminals know besides: U+0080 to U+009F, and their bytes where no character begins.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    return first < 0x20 || first == 0x7f || (first & 0xc0) == 0x80 ||
           (first == 0xc2 && character.size() > 1 && static_cast<unsigned char>(character[1]) < 0xa0);
}

}  // namespace

ViewLine& ViewLine::add(std::string_view text, Tone tone) {
    const bool coloured = colour_ && tone != Tone::kPlain && !text.empty() && room() > 0;
    if (coloured) text_ += kCodes[static_cast<std::size_t>(tone)];
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at + 1;
        while (end < text.size() && continues(text[end])) ++end;
        if (room() == 0) break;
        if (is_control(text.substr(at, end - at)))
            text_ += '?';
        else
            text_ += text.substr(at, end - at);
        ++columns_;
        at = end;
    }
    if (coloured) text_ += "\033[0m";
    return *this;
}

ViewLine& ViewLine::pad(std::size_t column) {
    const std::size_t until = std::min(column, width_);
    if (columns_ < until) {
        text_.append(until - columns_, ' ');
        columns_ = until;
    }
    return *this;
}

}  // namespace millrace::report
