#include "base/live_lines.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/split.h"

namespace millrace::base {
namespace {

std::string fitted(const std::string& lines) {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return lines;
    std::vector<std::string> fitting = split(lines, '\n');
    for (std::string& line : fitting) line.resize(std::min<std::size_t>(line.size(), size.ws_col - 1u));
    return fmt::format("{}", fmt::join(fitting, "\n"));
}

}  // namespace

LiveLines::LiveLines(bool live) : live_(live) {
    if (!live_) return;
    set_line_guard(
        [this] {
            const std::lock_guard lock(mutex_);
            return erased();
        },
        [this] {
            const std::lock_guard lock(mutex_);
            return lines_;
        });
}

LiveLines::~LiveLines() {
    draw({});
    if (live_) set_line_guard({}, {});
}

std::string LiveLines::erased() const {
    if (lines_.empty()) return {};
    std::string bytes = "\r\x1b[K";
    for (const char c : lines_)
        if (c == '\n') bytes += "\x1b[1A\x1b[K";
    return bytes;
}

void LiveLines::draw(const std::string& lines) {
    if (!live_) return;
    std::string bytes;
    {
        const std::lock_guard lock(mutex_);
        if (lines.empty() && lines_.empty()) return;
        bytes = erased();
        lines_ = fitted(lines);
        bytes += lines_;
    }
    write_to_terminal(bytes);
}

}  // namespace millrace::base
