#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "cli/run_arguments.h"
#include "io/pending_file.h"
#include "report/terminal.h"
#include "train/recipe_keys.h"
#include "tune/tune.h"

namespace millrace::cli {
namespace {

struct TuneArguments : RecipeArguments {
    std::string out = "tuned.toml";
    std::vector<std::string> free;
    bool json = false, quiet = false;
    tune::TuneOptions options;
};

/// Before the time is spent: a file of somebody else's must not be lost, nor the recipe itself.
base::Status check_out(const TuneArguments& given) {
    const io::NamedFile files[] = {{"RECIPE", given.recipe}, {"--out", given.out}};
    MILLRACE_TRY(io::check_apart(files));
    MILLRACE_TRY(io::check_writable(given.out));
    if (!std::filesystem::exists(given.out)) return base::ok();
    const auto text = io::read_text(given.out);
    if (text.ok() && text->starts_with(tune::kTunedMark)) return base::ok();
    return base::Error{"exists and was not written by millrace tune; another name after --out would be right", given.out};
}

base::Status read_free(TuneArguments& given) {
    for (const std::string& each : given.free) {
        if (each == "batch")
            given.options.batch_free = true;
        else if (each == "precision")
            given.options.precision_free = true;
        else
            return base::Error{fmt::format("'{}' is neither batch nor precision", each), "--free"};
    }
    return base::ok();
}

/// On a terminal one line that moves; elsewhere a line per stage.
class Progress {
public:
    explicit Progress(bool quiet) : quiet_(quiet), terminal_(base::stderr_is_terminal()) {}

    void show(const std::string& what, double share) {
        if (quiet_) return;
        const std::string stage = what.substr(0, what.find(':'));
        if (stage != stage_) {
            line_ = terminal_ ? std::make_unique<report::ProgressLine>(stage) : nullptr;
            if (!terminal_) std::fputs(fmt::format("tune: {} ({:.0f} %)\n", stage, 100 * share).c_str(), stderr);
            stage_ = stage;
        }
        if (line_) line_->show(share);
    }

private:
    bool quiet_, terminal_;
    std::string stage_;
    std::unique_ptr<report::ProgressLine> line_;
};

base::Result<int> run_tune(TuneArguments given) {
    MILLRACE_TRY(read_free(given));
    MILLRACE_TRY(check_out(given));
    // Every lane that is set up would say the same about the recipe.
    base::set_log_level(base::LogLevel::warn);
    MILLRACE_LET(recipe, train::load_recipe(given.recipe, given.overrides()));
    {
        Progress progress(given.quiet);
        given.options.progress = [&](const std::string& what, double share) { progress.show(what, share); };
        MILLRACE_LET(report, tune::tune(recipe, given.options));
        report.recipe = given.recipe;
        const std::string date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
        MILLRACE_LET(text, tune::tuned_recipe(recipe, report, date));
        MILLRACE_TRY(io::write_atomically(given.out, text));
        given.options.progress = {};
        say(given.json ? tune::report_json(report) + "\n" : tune::report_text(report) + "written: " + given.out + "\n");
    }
    return 0;
}

}  // namespace

void add_tune(const Command& program) {
    auto [command, given] = program.command<TuneArguments>(
        "tune", "find how a recipe runs fastest here, and what another batch would cost", run_tune);
    command.option("RECIPE", given.recipe, "recipe in TOML, such as those in recipes/").required();
    command.option("--seconds", given.options.seconds, "time for all of it; --verify takes as long again")
        .between(1.0, 86400.0)
        .show_default();
    command.option("--free WHAT", given.free, "batch, precision: may change although the recipe says otherwise; may be repeated");
    command.flag("--verify", given.options.verify, "measure the time to target of every batch instead of predicting it");
    command.option("--out FILE", given.out, "recipe to write").show_default();
    given.add_settings(command);
    command.flag("--json", given.json, "print JSON on stdout");
    command.flag("--quiet", given.quiet, "no progress on stderr");
    command.footer(R"(Examples:
  millrace tune recipes/NAME.toml
  millrace tune recipes/NAME.toml --free batch --verify --out faster.toml
  millrace train tuned.toml

Batch and, where the recipe names one, precision stay as they are unless --free says otherwise.)");
}

}  // namespace millrace::cli
