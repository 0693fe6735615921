#pragma once
// The terminal as a screen that is drawn over and over, and given back as it was found.

#include <string>
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

/// Takes the terminal's second screen and hides the cursor; the end of its life, and of the process by a crash, give both back.
/// At most one at a time.
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

}  // namespace millrace::report
