#pragma once
// What several commands share: a recipe and what is set above it, the run directory and console of those that train, and reading
// a run for those that judge it.

#include "base/recipe.h"
#include "cli/commands.h"
#include "diagnose/timeline/timeline.h"
#include "io/file.h"
#include "report/diagnosis_forms.h"
#include "train/console.h"
#include "train/setup.h"

namespace millrace::cli {

struct RecipeArguments {
    std::string recipe, device;
    std::vector<std::string> settings;

    /// --set and --device; this outlives the command.
    void add_settings(const Command& command, const std::string& device_meaning = "auto, cpu or cuda");
    /// --set, --device and the environment.
    [[nodiscard]] base::RecipeOverrides overrides() const;
};

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

/// With its progress on the terminal.
base::Result<diagnose::Timeline> read_run_with_progress(const std::string& path);
/// Colour on a terminal unless NO_COLOR forbids it; blocks where the locale has them.
report::TextOptions text_options();

}  // namespace millrace::cli
