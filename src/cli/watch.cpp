#include "base/units.h"
#include "cli/commands.h"
#include "report/watch_session.h"

namespace millrace::cli {
namespace {

struct WatchArguments {
    std::string interval = "1s", duration;
    int port = -1;
    report::WatchSettings settings;
};

constexpr int kLargestPort = 65535;

constexpr const char* kWatchFooter = R"(A command to watch follows --: millrace watch [OPTIONS] -- COMMAND ARGUMENTS...

Examples:
  millrace watch                                      the machine, until Ctrl-C
  millrace watch --duration 5m --csv gpu.csv --plot gpu.svg
  millrace watch --interval 100ms --json -- python train.py > samples.jsonl
  millrace watch --plot run.svg -- millrace train recipes/NAME.toml

Without a command a terminal shows a live screen, anything else a line per sample (at most one a second). While a command runs the
terminal is its own: the summary follows on stderr when it has ended. A watch that --duration ends first waits for the command
without sampling. Ctrl-C reaches the command by itself; SIGTERM and others sent to millrace alone are passed on to it.
With --json stdout holds one object per sample and at the end one with "kind": "summary"; words for people, and what the command
writes to its standard output, go to stderr.

Every option has a twin in the environment: MILLRACE_WATCH_INTERVAL=100ms, MILLRACE_WATCH_MONITOR_CSV=f.csv; options win.

Exit status: that of the command, 128 + n when signal n ended it, 127 when it was not found, 126 when it cannot be executed.
Without a command 0 after --duration or Ctrl-C, 128 + n after another signal n. 2 for bad arguments and outputs that cannot be
written.)";

base::Result<std::chrono::nanoseconds> duration_of(const char* option, const std::string& text, std::chrono::nanoseconds least) {
    const auto parsed = base::parse_duration(text);
    if (!parsed.ok()) return base::Error{parsed.error().message, option};
    constexpr auto kMost = std::chrono::hours{24 * 365};
    if (*parsed < least || *parsed > kMost)
        return base::Error{"'" + text + "' is out of range: from " + base::exact_duration(least) + " to 365d", option};
    return *parsed;
}

base::Result<int> run_watch(WatchArguments given, const Context& context) {
    report::WatchSettings& settings = given.settings;
    MILLRACE_SET(settings.interval, duration_of("--interval", given.interval, report::kShortestInterval));
    if (!given.duration.empty())
        MILLRACE_SET(settings.duration, duration_of("--duration", given.duration, std::chrono::milliseconds{1}));
    if (given.port >= 0) settings.prometheus_port = given.port;
    if (context.command) {
        if (context.command->empty()) return base::Error{"no command follows --"};
        settings.command = *context.command;
    }
    return report::watch(settings);
}

}  // namespace

void add_watch(const Command& program) {
    auto [command, given] =
        program.command<WatchArguments>("watch", "watch GPU, CPU, memory and power of the machine or of one command", run_watch);
    report::WatchSettings& settings = given.settings;
    command.option("--interval TIME", given.interval, "time between samples, at least 10ms").show_default();
    command.option("--duration TIME", given.duration, "stop watching after this time");
    command.option("--csv FILE", settings.csv, "write a column per quantity, empty where nothing was read");
    command.option("--monitor-csv FILE", settings.monitor_csv, "write the eleven columns of the original monitor");
    command.flag("--json", settings.json, "print samples and summary as JSON lines on stdout");
    command.option("--plot FILE", settings.plot, "draw what was watched as SVG");
    command.option("--tensorboard DIR", settings.tensorboard, "write an event file for TensorBoard");
    command.option("--prometheus-port PORT", given.port, "serve the newest values at /metrics; 0 takes a free port")
        .between(0, kLargestPort);
    command.option("--prometheus-address ADDRESS", settings.prometheus_address, "address to serve them on").show_default();
    command.option("--prometheus-file FILE", settings.prometheus_file, "keep them in a file for the textfile collector");
    command.flag("--quiet", settings.quiet, "show nothing but the summary");
    command.reads_environment("MILLRACE_WATCH");
    command.footer(kWatchFooter);
    command.takes_command();
}

}  // namespace millrace::cli
