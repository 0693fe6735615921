#pragma once
// What the commands that train share: their run directory and their console.

#include "cli/arguments.h"
#include "io/file.h"
#include "train/console.h"

namespace millrace::cli {

struct RunArguments {
    std::optional<std::string> out;
    std::string log_level;
    bool resume = false, quiet = false, json = false;

    /// --quiet, --log-level and --json; this outlives the command.
    void add_console(const Command& command);
    /// Sets the log level, too.
    [[nodiscard]] base::Result<train::ConsoleOptions> console() const;
    /// --out, else runs/ and the name of `file`, its newest run where one goes on. `what` is the file, for the user.
    [[nodiscard]] base::Result<io::Path> directory(const std::string& file, const char* what) const;
};

}  // namespace millrace::cli
