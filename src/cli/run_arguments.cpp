#include "cli/run_arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/log.h"
#include "train/trainer.h"

namespace millrace::cli {

void RunArguments::add_console(const Command& command) {
    command.flag("--quiet", quiet, "print the closing summary alone");
    command.option("--log-level", log_level, "error, warn, info, training, performance, profiling or debug");
    command.flag("--json", json, "print the result as JSON on stdout; everything else goes to stderr");
}

base::Result<train::ConsoleOptions> RunArguments::console() const {
    if (!log_level.empty()) {
        MILLRACE_LET(level, base::parse_log_level(log_level));
        base::set_log_level(level);
    }
    train::ConsoleOptions options;
    options.out = json ? stderr : stdout;
    options.live = isatty(STDOUT_FILENO) != 0 && base::stderr_is_terminal() && !quiet;
    options.quiet = quiet;
    options.detail = base::log_enabled(base::LogLevel::training) ? train::Detail::pace : train::Detail::losses;
    return options;
}

base::Result<io::Path> RunArguments::directory(const std::string& file, const char* what) const {
    if (out && out->empty())
        return base::Error{fmt::format("names no folder; leave it out for runs/ and the {}'s name", what), "--out \"\""};
    if (out) return io::Path(*out);
    const io::Path usual = train::default_run_directory(file);
    return resume ? train::newest_run_directory(usual) : usual;
}

}  // namespace millrace::cli
