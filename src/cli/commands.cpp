#include "cli/commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/log.h"
#include "base/version.h"

namespace millrace::cli {
namespace {

constexpr int kFinding = 1;

bool reader_left = false;  // of our standard output, a pipe: it has seen what it wanted

constexpr const char* kExamples = R"(Examples:
  millrace data make --help
  millrace train recipes/NAME.toml
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow --resume
  millrace sweep recipes/study-NAME.toml
  millrace eval runs/slow
  millrace tune recipes/NAME.toml
  millrace watch --plot run.svg -- python train.py
  millrace record -o runs/mine -- python train.py
  millrace diagnose runs/mine --html mine.html
  millrace compare runs/mine runs/cured

Exit status: 0 fine, 1 finding or failed run (a full disk), 2 usage or bad input, 3 no probe for record or no
memory for it, 4 no data, 128 + n after signal n; watch and record hand the status of the command they run through.)";

/// A file opened later must not become the standard output that was closed, and then receive what we print.
void keep_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(descriptor, F_GETFD) < 0)
            (void)open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // no use for either
}

base::Result<int> parse_and_run(Context& context) {
    Program program("millrace", "Millrace trains small and middle-sized models at the speed of the hardware.",
                    std::string("millrace ") + base::version());
    program.footer(kExamples);
    add_train(program, context);
    add_sweep(program, context);
    add_eval(program);
    add_classify(program);
    add_models(program);
    add_data(program);
    add_bench(program);
    add_tune(program);
    add_plan(program);
    add_watch(program, context);
    add_record(program, context);
    add_diagnose(program);
    add_compare(program);
    return program.run(context.argc, context.argv);
}

/// Prints "millrace: <text>" on stderr and gives the error's exit status.
int report(const base::Error& error) {
    // Through the log's form: an error quotes files, which must not drive the terminal.
    std::fputs(base::log_line(base::LogLevel::info, "millrace: " + error.text(), false).c_str(), stderr);
    return error.exit_status;
}

}  // namespace

void say(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 && errno == EPIPE) reader_left = true;
}

int run(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is a failed write, which is reported
    keep_standard_descriptors();
    Context context{argc, argv};
    const auto ran = parse_and_run(context);
    const int status = ran.ok() ? *ran : report(ran.error());
    errno = 0;
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush();
    if (!lost || reader_left || errno == EPIPE) return status;
    const int written = report(base::Error{"standard output is closed or full: not all of it was written"});
    // A finding that could not be printed is a failure; the status of a command that was run stays its own.
    return status == 0 || (status == kFinding && !context.command) ? written : status;
}

}  // namespace millrace::cli
