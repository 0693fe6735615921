#pragma once
// The commands of the binary `millrace`, one file each: arguments in, calls into train/, data/ and report/, text out.

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

/// What the commands share: how the program was called.
struct Context {
    int argc = 0;
    char** argv = nullptr;
    CommandWords command = {};  ///< for the commands that run one
};

/// Writes `text` to standard output; run() notices when that fails.
void say(const std::string& text);

// Each adds its command to the program; the context must outlive the program.
void add_train(const Command& program, Context& context);
void add_sweep(const Command& program, Context& context);
void add_eval(const Command& program);
void add_predict(const Command& program);
void add_classify(const Command& program);
void add_models(const Command& program);
void add_data(const Command& program);
void add_bench(const Command& program);
void add_tune(const Command& program);
void add_plan(const Command& program);
void add_watch(const Command& program, Context& context);
void add_record(const Command& program, Context& context);
void add_diagnose(const Command& program);
void add_compare(const Command& program);
void add_runs(const Command& program);
void add_ui(const Command& program);
void add_man(const Command& program);
void add_completion(const Command& program);

}  // namespace millrace::cli
