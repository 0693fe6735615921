#include "cli/commands.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

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
  millrace runs
  millrace eval runs/slow
  millrace predict runs/slow INPUT --out predicted.csv
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
                    std::string("millrace ") + base::version(), context);
    program.footer(kExamples);
    for (AddCommand* add :
         {add_train, add_sweep, add_runs, add_ui, add_eval, add_predict, add_classify, add_models, add_data, add_bench, add_tune,
          add_plan, add_watch, add_record, add_diagnose, add_compare, add_man, add_completion})
        add(program);
    return program.run();
}

/// Prints "millrace: <text>" on stderr and gives the error's exit status. One without text was reported by another process.
int report(const base::Error& error) {
    if (error.text().empty()) return error.exit_status;
    // Through the log's form: an error quotes files, which must not drive the terminal.
    std::fputs(base::log_line(base::LogLevel::info, "millrace: " + error.text(), false).c_str(), stderr);
    return error.exit_status;
}

/// What the machine could not give, where `thrown` says that; else absent.
std::optional<base::Error> shortage(const std::exception_ptr& thrown) {
    const auto failed = [](const char* text) { return base::Error{text, "", 1}; };
    try {
        if (thrown) std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
        return failed("the memory is used up, of the machine or below ulimit -v; a smaller model, batch or data set needs less");
    } catch (const std::system_error& error) {
        if (error.code() == std::errc::resource_unavailable_try_again)
            return failed(
                "the system gives no more threads (ulimit -u, or no memory for their stacks); --set threads=N takes fewer");
        if (error.code() == std::errc::too_many_files_open || error.code() == std::errc::too_many_files_open_in_system)
            return failed("the system gives no more descriptors (ulimit -n)");
    } catch (...) {
    }
    return std::nullopt;
}

/// Threads have stacks as large as this limit, and our deepest calls need more than a little.
base::Status check_stack() {
    constexpr rlim_t kLeast = 256 << 10;
    rlimit stack{};
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur == RLIM_INFINITY || stack.rlim_cur >= kLeast) return base::ok();
    return base::Error{"stacks of " + std::to_string(stack.rlim_cur >> 10) + " kB are too small; ulimit -s 256 would be right",
                       "", 1};
}

/// For exceptions that no caller catches: from a thread, or within a step.
[[noreturn]] void end_program() noexcept {
    if (const auto error = shortage(std::current_exception())) _exit(report(*error));
    std::abort();
}

base::Result<int> run_within_limits(Context& context) {
    try {
        MILLRACE_TRY(check_stack());
        return parse_and_run(context);
    } catch (...) {
        if (const auto error = shortage(std::current_exception())) return *error;
        throw;
    }
}

}  // namespace

void say(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 && errno == EPIPE) reader_left = true;
}

int run(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow further is a failed write, which is reported
    keep_standard_descriptors();
    Context context{argc, argv};
    std::set_terminate(end_program);
    const auto ran = run_within_limits(context);
    const int status = ran.ok() ? *ran : report(ran.error());
    errno = 0;
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush();
    if (!lost || reader_left || errno == EPIPE) return status;
    const int written = report(base::Error{"standard output is closed or full: not all of it was written", "", 1});
    // A finding that could not be printed is a failure; the status of a command that was run stays its own.
    return status == 0 || (status == kFinding && !context.command) ? written : status;
}

}  // namespace millrace::cli
