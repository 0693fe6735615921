#pragma once
// The commands of the binary `millrace`, a file for each or for those that belong together: arguments in, calls into train/,
// data/ and report/, text out.

#include <string>

#include "base/result.h"
#include "cli/arguments.h"

namespace millrace::cli {

/// Parses the arguments, runs the command, gives the exit status: 0 fine, 1 finding or failed run, 2 usage or bad input, 128 + n
/// after a signal; 1 also when standard output took less than was written, except where the status is that of a command that was
/// run or where the reader of a pipe left (train, eval; others end by SIGPIPE), and when the machine gave no more memory or
/// threads.
int run(int argc, char** argv);

constexpr int kNoData = 4;  ///< exit status of commands that found nothing to judge

/// Writes `text` to standard output; run() notices when that fails.
void say(const std::string& text);

/// Adds a command to the program.
using AddCommand = void(const Command& program);
AddCommand add_bench, add_classify, add_compare, add_completion, add_data, add_diagnose, add_eval, add_man, add_models, add_plan,
    add_predict, add_record, add_runs, add_sweep, add_train, add_tune, add_ui, add_watch;

}  // namespace millrace::cli
