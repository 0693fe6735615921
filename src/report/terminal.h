#pragma once
// What is shown on terminals: lines, a screen of them, the progress of a long read.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::report {

struct TerminalSize {
    int width = 80, height = 24;
};
/// Of the terminal behind a descriptor; 80 x 24 when it does not say.
TerminalSize terminal_size(int descriptor);

/// Whether text may hold more than ASCII: the first of LC_ALL, LC_CTYPE and LANG that is set and not empty names UTF-8. Null:
/// not set.
bool utf8_locale(const char* lc_all, const char* lc_ctype, const char* lang);

/// A screen that is drawn over and over. Takes the terminal's second screen and hides the cursor; the end of its life, and of the
/// process by a crash, give both back. At most one at a time.
class TerminalScreen {
public:
    explicit TerminalScreen(int descriptor);
    ~TerminalScreen();
    TerminalScreen(const TerminalScreen&) = delete;
    TerminalScreen& operator=(const TerminalScreen&) = delete;

    /// Replaces what is shown, without flicker. False when the terminal is gone.
    bool draw(const std::vector<std::string>& lines);
    /// Gives the terminal back, until the next draw takes it again.
    void leave();

private:
    void enter();

    int descriptor_;
    bool entered_ = false;
};

/// Whether a byte of UTF-8 belongs to the character before it.
constexpr bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

std::size_t columns_of(std::string_view text);

enum class Tone : std::uint8_t { kPlain, kStrong, kFaint, kGood, kCaution, kBad };

/// One line of a screen: never wider than it may be, with colour where that is wanted.
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

/// One word after the other in lines of at most `width` columns; words that are longer are cut into pieces. At least one line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// How far a long read has come, on one line that is gone when the read ends.
class ProgressLine {
public:
    /// Shows nothing when standard error is no terminal, nor before a read has taken half a second.
    explicit ProgressLine(std::string what);
    ~ProgressLine();  ///< takes the line away
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(double share);  ///< 0 to 1; cheap to call often

private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    bool wanted_, shown_ = false;
    Clock::time_point next_;
};

/// The line itself, no wider than `width`.
std::string progress_text(const std::string& what, double share, std::size_t width, bool utf8);

}  // namespace millrace::report
