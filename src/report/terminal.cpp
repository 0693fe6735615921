#include "report/terminal.h"

#include <fmt/format.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/result.h"

namespace millrace::report {
namespace {

constexpr std::string_view kEnter = "\033[?1049h\033[?25l", kLeave = "\033[?25h\033[?1049l";
constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

std::atomic<int> screen_descriptor{-1};
static_assert(std::atomic<int>::is_always_lock_free);

bool write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = write(descriptor, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

extern "C" void give_screen_back(int number) {
    if (const int descriptor = screen_descriptor.load(); descriptor >= 0) (void)write_all(descriptor, kLeave);
    raise(number);  // the handler was for once: this takes the default course
}

/// A sanitizer's or debugger's own handlers stay.
void handle_crashes(bool wanted) {
    for (const int number : kFatal) {
        struct sigaction now {};
        sigaction(number, nullptr, &now);
        const auto expected = wanted ? SIG_DFL : static_cast<void (*)(int)>(give_screen_back);
        if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != expected) continue;
        struct sigaction action {};
        action.sa_handler = wanted ? static_cast<void (*)(int)>(give_screen_back) : SIG_DFL;
        sigemptyset(&action.sa_mask);
        action.sa_flags = wanted ? static_cast<int>(SA_RESETHAND | SA_NODEFER) : 0;
        sigaction(number, &action, nullptr);
    }
}

constexpr const char* kCodes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31;1m"};

/// Of ASCII, and those terminals know besides: U+0080 to U+009F, and their bytes where no character begins.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    return first < 0x20 || first == 0x7f || (first & 0xc0) == 0x80 ||
           (first == 0xc2 && character.size() > 1 && static_cast<unsigned char>(character[1]) < 0xa0);
}

constexpr std::chrono::milliseconds kFirst{500}, kEvery{100};
constexpr std::size_t kBarWidth = 30;

}  // namespace

TerminalSize terminal_size(int descriptor) {
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
    return {size.ws_col, size.ws_row};
}

bool utf8_locale(const char* lc_all, const char* lc_ctype, const char* lang) {
    for (const char* value : {lc_all, lc_ctype, lang})
        if (value != nullptr && *value != '\0')
            return strcasestr(value, "utf-8") != nullptr || strcasestr(value, "utf8") != nullptr;
    return false;
}

TerminalScreen::TerminalScreen(int descriptor) : descriptor_(descriptor) { enter(); }

TerminalScreen::~TerminalScreen() { leave(); }

void TerminalScreen::enter() {
    int none = -1;
    MILLRACE_ASSERT(screen_descriptor.compare_exchange_strong(none, descriptor_), "one screen at a time");
    handle_crashes(true);
    entered_ = true;
    (void)write_all(descriptor_, kEnter);
}

void TerminalScreen::leave() {
    if (!entered_) return;
    (void)write_all(descriptor_, kLeave);
    handle_crashes(false);
    entered_ = false;
    screen_descriptor = -1;
}

bool TerminalScreen::draw(const std::vector<std::string>& lines) {
    if (!entered_) enter();
    std::string frame = "\033[H";
    for (std::size_t at = 0; at < lines.size(); ++at) frame += (at > 0 ? "\r\n\033[K" : "\033[K") + lines[at];
    return write_all(descriptor_, frame + "\r\n\033[J");
}

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

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), wanted_(base::stderr_is_terminal()), next_(Clock::now() + kFirst) {}

ProgressLine::~ProgressLine() {
    if (shown_) base::write_to_terminal("\r\033[K");
}

void ProgressLine::show(double share) {
    if (!wanted_) return;
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + kEvery;
    shown_ = true;
    const auto width = static_cast<std::size_t>(std::max(terminal_size(STDERR_FILENO).width - 1, 20));
    const bool utf8 = utf8_locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
    base::write_to_terminal("\r" + progress_text(what_, share, width, utf8) + "\033[K");
}

std::string progress_text(const std::string& what, double share, std::size_t width, bool utf8) {
    const double part = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
    const auto full = static_cast<std::size_t>(std::lround(part * kBarWidth));
    std::string bar;
    for (std::size_t at = 0; at < kBarWidth; ++at) bar += at < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
    return ViewLine(width, false).add(bar).add(fmt::format(" {:3.0f} % ", 100 * part)).add(what).text();
}

std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !continues(byte); }));
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
    std::vector<std::string> lines{""};
    std::size_t columns = 0;
    const auto add_word = [&](std::string_view word) {
        const std::size_t length = columns_of(word);
        if (columns > 0 && columns + 1 + length > width) {
            lines.emplace_back();
            columns = 0;
        }
        if (columns > 0) {
            lines.back() += ' ';
            ++columns;
        }
        for (std::size_t at = 0; at < word.size();) {
            std::size_t end = at + 1;
            while (end < word.size() && continues(word[end])) ++end;
            if (columns >= width) {
                lines.emplace_back();
                columns = 0;
            }
            lines.back() += word.substr(at, end - at);
            ++columns;
            at = end;
        }
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = text.find_first_not_of(" \n\t\r", at);
        if (begin == std::string_view::npos) break;
        const std::size_t end = std::min(text.find_first_of(" \n\t\r", begin), text.size());
        add_word(text.substr(begin, end - begin));
        at = end;
    }
    return lines;
}

}  // namespace millrace::report
