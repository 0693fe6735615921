#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/nearest.h"
#include "base/split.h"

namespace millrace::base {
namespace {

constexpr const char* kLevelNames[] = {"error", "warn", "info", "training", "performance", "profiling", "debug"};
constexpr const char* kPrefixes[] = {"error: ", "warning: ", "", "training: ", "performance: ", "profiling: ", "debug: "};
constexpr const char* kColours[] = {"\033[31;1m", "\033[33m", "", "\033[32m", "\033[36m", "\033[35m", "\033[2m"};
constexpr const char* kColourEnd = "\033[0m";

struct LogState {
    std::mutex mutex;
    std::string live_lines;  ///< below the log now
    std::string source;
};

// Never destroyed: threads and destructors of statics may log while the program ends.
LogState& state() {
    static auto* instance = new LogState;
    return *instance;
}

/// Writes everything or gives up: a log must not fail the program whose output was closed.
void write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return;
        bytes.remove_prefix(static_cast<size_t>(count));
    }
}

std::string erasing(const std::string& lines) {
    if (lines.empty()) return {};
    std::string bytes = "\r\x1b[K";
    for (const char c : lines)
        if (c == '\n') bytes += "\x1b[1A\x1b[K";
    return bytes;
}

/// Each line cut to the terminal's width.
std::string fitted(const std::string& lines) {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return lines;
    std::string out;
    for (const std::string& line : split(lines, '\n')) out += line.substr(0, size.ws_col - 1u) + "\n";
    out.pop_back();
    return out;
}

}  // namespace

Result<LogLevel> parse_log_level(std::string_view name) {
    for (size_t i = 0; i < std::size(kLevelNames); ++i)
        if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
    const std::vector<std::string> names(std::begin(kLevelNames), std::end(kLevelNames));
    const std::string close = nearest_name(name, names);
    return Error{fmt::format("'{}' is no log level{}; the levels are error, warn, info, training, performance, profiling, debug",
                             name, close.empty() ? "" : fmt::format(", did you mean {}?", close))};
}

void set_log_level(LogLevel level) { detail::log_threshold.store(static_cast<int>(level), std::memory_order_relaxed); }

void detail::log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
    LogState& log = state();
    const std::string text = log.source + fmt::vformat(format, arguments);
    const std::lock_guard lock(log.mutex);
    static const bool colour = colour_wanted(stderr_is_terminal(), std::getenv("NO_COLOR"));
    write_all(STDERR_FILENO, erasing(log.live_lines) + log_line(level, text, colour) + log.live_lines);
}

void set_log_source(std::string source) { state().source = std::move(source); }

void LiveLines::draw(const std::string& lines) {
    if (!live_) return;
    const std::lock_guard lock(state().mutex);
    std::string& drawn = state().live_lines;
    if (lines.empty() && drawn.empty()) return;
    const std::string bytes = erasing(drawn);
    drawn = fitted(lines);
    write_all(STDERR_FILENO, bytes + drawn);
}

void write_to_terminal(std::string_view bytes) {
    const std::lock_guard lock(state().mutex);
    write_all(STDERR_FILENO, bytes);
}

bool stderr_is_terminal() {
    const char* kind = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) == 1 && kind != nullptr && std::string_view{kind} != "dumb";
}

bool colour_wanted(bool is_terminal, const char* no_color) { return is_terminal && (no_color == nullptr || *no_color == '\0'); }

std::string log_line(LogLevel level, std::string_view text, bool colour) {
    const auto at = static_cast<size_t>(level);
    const std::string_view prefix = kPrefixes[at];
    std::string line;
    if (colour && !prefix.empty()) {
        line += kColours[at];
        line += prefix.substr(0, prefix.size() - 1);
        line += kColourEnd;
        line += ' ';
    } else {
        line += prefix;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        // Text of a hostile file may sit in a message; it must not drive the terminal.
        const auto code = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
        if (code == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F in UTF-8
            line += fmt::format("\\x{:02x}", next);
            ++i;
        } else if ((code < 0x20 && code != '\n' && code != '\t') || code == 0x7f) {
            line += fmt::format("\\x{:02x}", code);
        } else {
            line += text[i];
        }
    }
    line += '\n';
    return line;
}

}  // namespace millrace::base
