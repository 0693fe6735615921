#pragma once
// The commands of the binary `millrace`, one file each: arguments in, calls into train/, data/ and report/, text out.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library chose its name
class App;
}

namespace millrace::cli {

/// Parses the arguments, runs the command, gives the exit status: 0 fine, 1 finding or failed run, 2 usage or bad input, 128 + n
/// after a signal; 2 also when standard output took less than was written, except where the status is that of a command that was
/// run or where the reader of a pipe left (train, eval; others end by SIGPIPE).
int run(int argc, char** argv);

/// What the commands share: how the program was called, and what it will return.
struct Context {
    int argc = 0;
    char** argv = nullptr;
    int exit_status = 0;
    std::optional<std::vector<std::string>> command = {};  ///< what follows "--", for the commands that run one
};

/// Writes `text` to standard output; run() notices when that fails.
void say(const std::string& text);

/// Prints "millrace: <text>" on stderr and gives the error's exit status.
int report(const base::Error& error);

// Each adds its command to the program; the context must outlive the parsing.
void add_train(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_models(CLI::App& app, Context& context);
void add_data(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);
void add_watch(CLI::App& app, Context& context);
void add_record(CLI::App& app, Context& context);
void add_diagnose(CLI::App& app, Context& context);
void add_compare(CLI::App& app, Context& context);

}  // namespace millrace::cli
