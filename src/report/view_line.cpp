#include "report/view_line.h"

#include <algorithm>

namespace millrace::report {
namespace {

constexpr const char* kCodes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31;1m"};

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
bool is_control(char byte) { return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f; }

}  // namespace

ViewLine& ViewLine::add(std::string_view text, Tone tone) {
    const bool coloured = colour_ && tone != Tone::kPlain && !text.empty() && room() > 0;
    if (coloured) text_ += kCodes[static_cast<std::size_t>(tone)];
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at + 1;
        while (end < text.size() && continues(text[end])) ++end;
        if (room() == 0) break;
        if (is_control(text[at]))
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
