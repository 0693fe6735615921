#pragma once
// One line of a screen: never wider than it may be, with colour where that is wanted.

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::report {

/// Whether a byte of UTF-8 belongs to the character before it.
constexpr bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

enum class Tone : std::uint8_t { kPlain, kStrong, kFaint, kGood, kCaution, kBad };

class ViewLine {
public:
    ViewLine(std::size_t width, bool colour) : width_(width), colour_(colour) {}

    /// Appends what still fits. Every code point counts as one column; control characters become "?".
    ViewLine& add(std::string_view text, Tone tone = Tone::kPlain);
    /// Blanks up to a column.
    ViewLine& pad(std::size_t column);
    [[nodiscard]] std::size_t columns() const { return columns_; }
    [[nodiscard]] std::size_t room() const { return width_ - columns_; }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    std::size_t width_, columns_ = 0;
    bool colour_;
    std::string text_;
};

}  // namespace millrace::report
