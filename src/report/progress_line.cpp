#include "report/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "report/terminal_screen.h"
#include "report/view_line.h"

namespace millrace::report {
namespace {

constexpr std::chrono::milliseconds kFirst{500}, kEvery{100};
constexpr std::size_t kBarWidth = 30;

}  // namespace

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

}  // namespace millrace::report
