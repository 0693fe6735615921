#pragma once
// What the commands that train share: their run directory and their console.

#include "cli/commands.h"
#include "io/file.h"
#include "train/console.h"

namespace millrace::cli {

struct RunArguments {
    std::optional<std::string> out;
    std::string log_level;
    std::optional<std::string> slurm;
    bool resume = false, quiet = false, json = false;

    /// --quiet, --log-level and --json; this outlives the command.
    void add_console(const Command& command);
    /// Sets the log level, too.
    [[nodiscard]] base::Result<train::ConsoleOptions> console() const;
    /// --out, else runs/ and the name of `file`, its newest run where one goes on.
    [[nodiscard]] base::Result<io::Path> directory(const std::string& file) const;
};

/// The command line without these options and their values.
std::vector<std::string> words_without(const Context& context, const std::vector<std::string>& options);
/// Hands the script to sbatch and keeps it in `file`, or prints it where there is no sbatch.
base::Result<int> submit_script(const std::string& script, const io::Path& file);

}  // namespace millrace::cli
