#include "cli/commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>

#include "base/log.h"
#include "base/nearest.h"
#include "base/version.h"

namespace millrace::cli {
namespace {

constexpr int kFinding = 1;

bool reader_left = false;  // of our standard output, a pipe: it has seen what it wanted

constexpr const char* kExamples = R"(Examples:
  millrace data make garments --out data/garments
  millrace train recipes/collective-debug.toml
  millrace train recipes/collective-debug.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow
  millrace train recipes/collective-debug.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow --resume
  millrace eval runs/slow
  millrace watch --plot run.svg -- python train.py
  millrace record -o runs/mine -- python train.py
  millrace diagnose runs/mine --html mine.html
  millrace compare runs/mine runs/cured

Exit status: 0 fine, 1 finding or failed run (a full disk), 2 usage or bad input, 3 no probe for record or no
memory for it, 4 no data,
128 + n after signal n; watch and record hand the status of the command they run through.)";

/// What was wrong with the arguments and where help is.
std::string usage_text(const CLI::App& app, const std::string& command, const std::string& problem) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
    if (std::find(names.begin(), names.end(), command) != names.end()) {
        std::string words = command;
        for (const CLI::App* at = app.get_subcommand(command); !at->get_subcommands().empty(); words += " " + at->get_name())
            at = at->get_subcommands().front();
        return fmt::format("{}\nTry: millrace {} --help", problem, words);
    }
    if (command.empty() || command.front() == '-') return problem + "\nTry: millrace --help";
    const std::string nearest = base::nearest_name(command, names);
    return fmt::format("unknown command '{}'; {}", command,
                       nearest.empty() ? "millrace --help lists them" : fmt::format("did you mean {}?", nearest));
}

/// A file opened later must not become the standard output that was closed, and then receive what we print.
void keep_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(descriptor, F_GETFD) < 0)
            (void)open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // no use for either
}

/// Cuts the command that follows "--" off the arguments of those commands that run one: its words are not ours to read.
std::optional<std::vector<std::string>> cut_command(int& argc, char** argv) {
    if (argc < 2 || (std::string_view(argv[1]) != "watch" && std::string_view(argv[1]) != "record")) return std::nullopt;
    const auto mark = std::find(argv, argv + argc, std::string_view("--"));
    if (mark == argv + argc) return std::nullopt;
    std::vector<std::string> command(mark + 1, argv + argc);
    argc = static_cast<int>(mark - argv);
    return command;
}

int parse_and_run(Context& context) {
    CLI::App app{"Millrace trains small and middle-sized models at the speed of the hardware.", "millrace"};
    app.footer(kExamples);
    app.set_version_flag("--version", std::string("millrace ") + base::version());
    app.require_subcommand(1);
    int argc = context.argc;
    char** argv = context.argv;
    context.command = cut_command(argc, argv);
    add_train(app, context);
    add_eval(app, context);
    add_models(app, context);
    add_data(app, context);
    add_bench(app, context);
    add_watch(app, context);
    add_record(app, context);
    add_diagnose(app, context);
    add_compare(app, context);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& done) {
        return app.exit(done);  // --help, --version
    } catch (const CLI::ParseError& problem) {
        return report(base::Error{usage_text(app, argc > 1 ? argv[1] : "", problem.what())});
    }
    return context.exit_status;
}

}  // namespace

void say(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 && errno == EPIPE) reader_left = true;
}

int report(const base::Error& error) {
    // Through the log's form: an error quotes files, which must not drive the terminal.
    std::fputs(base::log_line(base::LogLevel::info, "millrace: " + error.text(), false).c_str(), stderr);
    return error.exit_status;
}

int run(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is a failed write, which is reported
    keep_standard_descriptors();
    Context context{argc, argv, 0};
    const int status = parse_and_run(context);
    errno = 0;
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush();
    if (!lost || reader_left || errno == EPIPE) return status;
    const int written = report(base::Error{"standard output is closed or full: not all of it was written"});
    // A finding that nobody could read is a failure; the status of a command that was run stays its own.
    return status == 0 || (status == kFinding && !context.command) ? written : status;
}

}  // namespace millrace::cli
