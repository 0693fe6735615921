#include "cli/run_arguments.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "diagnose/reading/timeline_reader.h"
#include "report/terminal.h"
#include "sweep/slurm.h"
#include "train/trainer.h"

namespace millrace::cli {

void RecipeArguments::add_settings(const Command& command, const std::string& device_meaning) {
    command.option("--set KEY=VALUE", settings, "key=value: beats the recipe; may be repeated");
    command.option("--device", device, device_meaning).one_of({"auto", "cpu", "cuda"});
}

base::RecipeOverrides RecipeArguments::overrides() const {
    base::RecipeOverrides all{settings, base::recipe_environment()};
    if (!device.empty()) all.flags.push_back("device=" + device);
    return all;
}

void RunArguments::add_console(const Command& command) {
    command.flag("--quiet", quiet, "print the closing summary alone");
    command.option("--log-level", log_level, "error, warn, info, training, performance, profiling or debug");
    command.flag("--json", json, "print the result as JSON on stdout; everything else goes to stderr");
}

base::Result<train::ConsoleOptions> RunArguments::console() const {
    if (!log_level.empty()) {
        MILLRACE_LET(level, base::parse_log_level(log_level));
        base::set_log_level(level);
    }
    train::ConsoleOptions options;
    options.out = json ? stderr : stdout;
    options.live = isatty(STDOUT_FILENO) != 0 && base::stderr_is_terminal() && !quiet;
    options.quiet = quiet;
    options.detail = base::log_enabled(base::LogLevel::training) ? train::Detail::pace : train::Detail::losses;
    return options;
}

base::Result<io::Path> RunArguments::directory(const std::string& file) const {
    if (out) return io::Path(*out);
    const io::Path usual = train::default_run_directory(file);
    return resume ? train::newest_run_directory(usual) : usual;
}

std::vector<std::string> words_without(const Context& context, const std::vector<std::string>& options) {
    std::vector<std::string> words;
    for (int i = 0; i < context.argc; ++i) {
        const std::string word = context.argv[i];
        if (std::ranges::find(options, word) != options.end())
            ++i;
        else if (std::ranges::find(options, word.substr(0, word.find('='))) == options.end())
            words.push_back(word);
    }
    return words;
}

base::Result<int> submit_script(const std::string& script, const io::Path& file) {
    std::error_code failed;
    std::filesystem::create_directories(file.parent_path(), failed);
    MILLRACE_LET(is_submitted, sweep::submit_slurm_script(script, file));
    if (!is_submitted) say(script);
    return 0;
}

base::Result<diagnose::Timeline> read_run_with_progress(const std::string& path) {
    report::ProgressLine line("reading " + path);
    return diagnose::read_timeline(path, [&line](double share) { line.show(share); });
}

report::TextOptions text_options() {
    report::TextOptions options;
    const char* term = std::getenv("TERM");
    const bool terminal = isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
    options.colour = base::colour_wanted(terminal, std::getenv("NO_COLOR"));
    options.utf8 = report::utf8_locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
    return options;
}

}  // namespace millrace::cli
