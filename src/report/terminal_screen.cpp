#include "report/terminal_screen.h"

#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

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

}  // namespace millrace::report
