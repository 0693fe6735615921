#include "sweep/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/units.h"

namespace millrace::sweep {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};

/// Each line cut to the terminal's width: one that wraps cannot be erased.
std::string fitted(const std::string& lines) {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return lines;
    std::string out;
    for (std::size_t begin = 0; begin <= lines.size();) {
        const std::size_t end = std::min(lines.find('\n', begin), lines.size());
        out += (begin > 0 ? "\n" : "") + lines.substr(begin, std::min<std::size_t>(end - begin, size.ws_col - 1u));
        begin = end + 1;
    }
    return out;
}

}  // namespace

std::string progress_text(const Progress& progress) {
    std::string text = fmt::format("trials {} of {}: {} complete, {} running", progress.started, progress.wanted,
                                   progress.complete, progress.running);
    if (progress.paused > 0) text += fmt::format(", {} paused", progress.paused);
    if (progress.pruned > 0) text += fmt::format(", {} pruned", progress.pruned);
    if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
    if (progress.is_final) text += "; finalists are trained again";
    text += fmt::format("  {} of {} lanes", progress.busy_lanes, progress.lanes);
    if (progress.times.total > 0)
        text += fmt::format("  {:.3g} trial-epochs/s", static_cast<double>(progress.trial_epochs) / progress.times.total);
    if (progress.seconds_left >= 0 && progress.seconds_left < 1e9)
        text += fmt::format("  {} left", base::print_duration(std::chrono::seconds(std::llround(progress.seconds_left))));
    if (!progress.best.empty()) text += "\n  best " + progress.best;
    return text;
}

Console::Console(train::ConsoleOptions options, const base::Clock& clock) : options_(options), clock_(clock), last_(clock.now()) {
    if (!options_.live) return;
    base::set_line_guard(
        [this] {
            const std::lock_guard lock(mutex_);
            return erased();
        },
        [this] {
            const std::lock_guard lock(mutex_);
            return lines_;
        });
}

Console::~Console() {
    if (!options_.live) return;
    end();
    base::set_line_guard({}, {});
}

std::string Console::erased() const {
    if (lines_.empty()) return {};
    std::string bytes = "\r\x1b[K";
    for (const char c : lines_)
        if (c == '\n') bytes += "\x1b[1A\x1b[K";
    return bytes;
}

void Console::draw(const std::string& lines) {
    std::string bytes;
    {
        const std::lock_guard lock(mutex_);
        if (lines.empty() && lines_.empty()) return;
        bytes = erased() + lines;
        lines_ = lines;
    }
    base::write_to_terminal(bytes);
}

void Console::show(const Progress& progress) {
    if (options_.quiet) return;
    const auto interval = options_.live ? std::chrono::nanoseconds{kLiveInterval} : options_.plain_interval;
    if (clock_.now() - last_ < interval) return;
    last_ = clock_.now();
    if (options_.live) return draw(fitted(progress_text(progress)));
    std::fputs((progress_text(progress) + "\n").c_str(), options_.out);
    std::fflush(options_.out);
}

void Console::end() {
    if (options_.live) draw({});
}

}  // namespace millrace::sweep
