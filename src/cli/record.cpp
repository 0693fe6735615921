#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "record/probe_files.h"
#include "record/record_session.h"

namespace millrace::cli {
namespace {

struct RecordArguments {
    record::RecordSettings settings;
    std::string probe;
    std::uint32_t repeat = 1;
    bool no_samples = false, quiet = false;
};

constexpr const char* kRecordFooter = R"(The command follows --: millrace record [OPTIONS] -- COMMAND ARGUMENTS...

Examples:
  millrace record -- python train.py
  millrace record -o runs/before -- torchrun --nproc-per-node 2 train.py
  millrace record --steps-per-window 20 --every 500 -- ./trainer
  millrace record --repeat 5 -o runs/main -- python train.py     runs/main/1 to runs/main/5, one side of millrace compare

The command runs unchanged: it has the terminal, its output and its exit status are its own, and what millrace has to say follows on
stderr when it has ended (--quiet: not at all). Its processes that use CUDA are recorded in full in windows of some steps, at least three
when it is long enough; in between steps are only counted. Threads (Python stacks, system calls) and the machine are sampled meanwhile.
Where CUPTI cannot be had, because another profiler holds it or no library fits, the samples alone are recorded, and the summary says so.

Every option has a twin in the environment: MILLRACE_RECORD_OUT=runs/a, MILLRACE_RECORD_EVERY=500; options win.

Exit status: that of the command (with --repeat of the last), whatever was recorded; 128 + n when signal n ended it, 127 when it was not found, 126 when it cannot be
executed. Before it begins: 2 for bad arguments and a run directory that cannot be written, 3 when there is no probe or no place for
its memory.)";

base::Result<int> run_record(RecordArguments given, const Context& context) {
    record::RecordSettings& settings = given.settings;
    if (!context.command || context.command->empty())
        return base::Error{"no command to record: it follows --, as in millrace record -- python train.py"};
    settings.command = *context.command;
    settings.samples = !given.no_samples;
    MILLRACE_SET(settings.probe, given.probe.empty() ? record::find_probe_library() : record::check_probe_library(given.probe));
    const std::filesystem::path out = settings.out.empty() ? record::default_run_name() : settings.out;
    std::error_code ignored;
    if (given.repeat > 1 && std::filesystem::exists(out / "manifest.json", ignored))
        return base::Error{"holds a run already; --repeat needs a folder for its runs: choose another --out", out.string()};
    for (std::uint32_t number = 1;; ++number) {
        settings.out = given.repeat > 1 ? out / std::to_string(number) : out;
        MILLRACE_LET(outcome, record::record_command(settings));
        if (!given.quiet) {
            std::fputs(record::summary_text(outcome).c_str(), stderr);
            std::fflush(stderr);
        }
        if (outcome.status != 0 || number >= given.repeat) return outcome.status;
    }
}

}  // namespace

void add_record(const Command& program) {
    auto [command, given] =
        program.command<RecordArguments>("record", "run a CUDA program and record what it and its GPU do", run_record);
    record::RecordSettings& settings = given.settings;
    constexpr std::uint32_t kMostSteps = 100'000, kMostEvery = 1'000'000'000, kMostRepeats = 1'000;
    command.option("-o,--out RUN", settings.out, "run directory to write; by default runs/record-<time>");
    command.option("--steps-per-window N", settings.schedule.steps_per_window, "steps that are recorded in one go")
        .show_default()
        .between(record::kLeastSteps, kMostSteps);
    const Option every = command
                             .option("--every N", settings.schedule.every,
                                     "steps from one such window to the next; more where they would cost over 1 % of the time "
                                     "or take over 10 KB a second")
                             .show_default()
                             .between(std::uint32_t{1}, kMostEvery);
    command
        .flag("--finalize-cupti", settings.schedule.may_leave,
              "after the third window end CUPTI for good in programs that its presence slows down by over 1 %: no further "
              "windows, steps are still counted")
        .excludes(every);
    command
        .option("--repeat N", given.repeat,
                "run and record the command so many times, into numbered folders below RUN, which `millrace compare` takes as "
                "recordings of one side; ends with the first run that fails")
        .show_default()
        .between(std::uint32_t{1}, kMostRepeats);
    command.flag("--no-samples", given.no_samples, "do not look at the threads of the command");
    command.option("--probe FILE", given.probe, "the probe's library, when it is not beside this program");
    command.flag("--quiet", given.quiet, "no summary");
    command.reads_environment("MILLRACE_RECORD");
    command.footer(kRecordFooter);
    command.takes_command();
}

}  // namespace millrace::cli
