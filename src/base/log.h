#pragma once
// Messages for people. A message below the level costs one comparison: its arguments are not evaluated and nothing is formatted.
//
//     MILLRACE_LOG(training, "epoch {}: loss {:.4f}", epoch, loss);
//
// Lines go to stderr (colour only on a terminal, NO_COLOR respected). All functions are thread safe.

#include <fmt/core.h>

#include <atomic>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::base {

/// From the gravest to the most talkative; a level includes those before it.
enum class LogLevel : int { error, warn, info, training, performance, profiling, debug };

/// "training" is LogLevel::training; an unknown word is an error that lists the levels.
Result<LogLevel> parse_log_level(std::string_view name);

void set_log_level(LogLevel level);

namespace detail {
inline std::atomic<int> log_threshold{static_cast<int>(LogLevel::training)};
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments);
template <class... Arguments>
void log_message(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    log_formatted(level, format, fmt::make_format_args(arguments...));
}
}  // namespace detail

inline bool log_enabled(LogLevel level) {
    return static_cast<int>(level) <= detail::log_threshold.load(std::memory_order_relaxed);
}

/// Stands before the text of each line, as "rank 3: ". Once, before other threads log.
void set_log_source(std::string source);

/// Lines at the end of a terminal that are drawn again and again, while the log writes above them. One at a time.
class LiveLines {
public:
    /// `live` false: draws nothing.
    explicit LiveLines(bool live) : live_(live) {}
    ~LiveLines() { draw({}); }
    LiveLines(const LiveLines&) = delete;
    LiveLines& operator=(const LiveLines&) = delete;

    /// Replaces them, each cut to the terminal's width: one that wraps cannot be erased. Empty: removes them.
    void draw(const std::string& lines);

private:
    const bool live_;
};

/// Writes raw bytes to stderr in one piece, never in the middle of a log line. For progress lines.
void write_to_terminal(std::string_view bytes);

/// True when stderr is a terminal that understands control sequences (TERM is set and not "dumb").
bool stderr_is_terminal();
/// The rule for colour, apart from where its inputs come from. `no_color` is the variable's value, null when it is not set.
bool colour_wanted(bool is_terminal, const char* no_color);

/// One line as stderr shows it: a prefix for all levels but info, control characters other than tab and newline made visible.
std::string log_line(LogLevel level, std::string_view text, bool colour);

}  // namespace millrace::base

/// MILLRACE_LOG(level, format, arguments...): `level` is a bare word of LogLevel.
#define MILLRACE_LOG(level, ...) \
    do { \
        if (::millrace::base::log_enabled(::millrace::base::LogLevel::level)) \
            ::millrace::base::detail::log_message(::millrace::base::LogLevel::level, __VA_ARGS__); \
    } while (false)
