#pragma once
// A watch from its first sample to its closing summary: opens the machine and the outputs, runs the command, shows what goes on,
// ends when the time is over, the command has ended or a signal says so.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace::report {

constexpr std::chrono::nanoseconds kShortestInterval = std::chrono::milliseconds{10};

struct WatchSettings {
    std::chrono::nanoseconds interval = std::chrono::seconds{1};  ///< at least kShortestInterval
    std::optional<std::chrono::nanoseconds> duration;             ///< absent: until the command ends or Ctrl-C
    // Outputs, empty: none.
    std::string csv, monitor_csv, plot, tensorboard, prometheus_file;
    std::optional<int> prometheus_port;
    std::string prometheus_address = "127.0.0.1";
    bool json = false;                 ///< samples and summary as JSON lines on stdout, words for people on stderr
    bool quiet = false;                ///< nothing but the summary
    std::vector<std::string> command;  ///< empty: the machine alone, without figures of any process
};

/// The exit status: the command's, handed through; without one 0 after the duration or Ctrl-C, 128 + n after another signal n, 2
/// when an output was lost. An error is returned before the command begins when an output cannot be opened or the command cannot
/// be started.
///
/// While a command runs the terminal is its own: nothing is shown but the summary, on stderr, when it has ended. A signal that
/// was sent to this process alone is passed on to the command; Ctrl-C reaches it by itself. Without a command a terminal shows a
/// live screen, anything else a line per sample, at most one a second.
base::Result<int> watch(const WatchSettings& settings);

}  // namespace millrace::report
