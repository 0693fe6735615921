#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>

#include "base/json.h"
#include "base/log.h"
#include "base/recipe_value.h"
#include "cli/run_arguments.h"
#include "comm/group.h"
#include "report/terminal.h"
#include "sweep/slurm.h"
#include "train/memory_plan.h"
#include "train/recipe_keys.h"
#include "train/run_signals.h"
#include "train/trainer.h"
#include "ui/run_report.h"

namespace millrace::cli {
namespace {

struct TrainArguments : RecipeArguments, RunArguments {
    std::string precision, init;
    bool keys = false;
};

void add_scores(nlohmann::ordered_json& json, const train::RunResult& result, const train::MemberResult& member) {
    if (result.classifies)
        json["validation_accuracy"] = member.validation_accuracy;
    else
        json["validation_loss"] = member.validation_loss;
    if (result.classifies && result.tested) json["test_accuracy"] = member.test_accuracy;
    if (result.tested) json["test_loss"] = member.test_loss;
    for (const models::Figure& figure : member.more.figures) json[figure.name] = figure.value;
}

std::string result_json(const train::RunResult& result) {
    nlohmann::ordered_json json{{"run", result.run},
                                {"signal", result.signal},
                                {"epochs", result.epochs},
                                {"step", result.step},
                                {"dropped", result.dropped},
                                {"parameters", result.parameters},
                                {"seconds", result.seconds},
                                {"samples_per_second", result.samples_per_second},
                                {"steps_per_second", result.steps_per_second}};
    if (!result.ended_early.empty()) json["ended_early"] = result.ended_early;
    json["best_metric"] = result.best_metric;
    if (!result.members.empty()) {
        const std::size_t member = train::best_member(result);
        const train::MemberResult& best = result.members[member];
        json["member"] = member;
        add_scores(json, result, best);
        json["best_epoch"] = best.best_epoch;
    }
    json["members"] = nlohmann::ordered_json::array();
    for (const train::MemberResult& member : result.members) {
        nlohmann::ordered_json scores;
        add_scores(scores, result, member);
        scores["validation_loss"] = member.validation_loss;
        scores["best_epoch"] = member.best_epoch;
        json["members"].push_back(std::move(scores));
    }
    return base::json_text(json, 1);
}

base::Status prepare(const TrainArguments& given, const Context& context, const comm::Group& group, base::Recipe& recipe,
                     train::TrainRequest& request, train::ConsoleOptions& options) {
    MILLRACE_SET(options, given.console());
    base::RecipeOverrides overrides = given.overrides();
    if (!given.precision.empty()) overrides.flags.push_back("precision=" + given.precision);
    MILLRACE_SET(recipe, train::load_recipe(given.recipe, overrides));
    for (const std::string& idle : train::idle_keys(recipe))
        if (group.rank() == 0) MILLRACE_LOG(warn, "{}", idle);
    request.resume = given.resume;
    request.command.assign(context.argv, context.argv + context.argc);
    request.init = given.init;
    MILLRACE_SET(request.out, given.directory(given.recipe));
    request.number_if_taken = !given.out;
    return base::ok();
}

base::Result<int> train_recipe(const TrainArguments& given, const Context& context) {
    std::signal(SIGPIPE, SIG_IGN);    // a reader of our output may leave; the run goes on
    const train::RunSignals signals;  // first of all: every thread of the run inherits that they are blocked
    // Behind the last file of rank 0 all ranks meet, when the group is closed: mpirun ends all when the first one ends badly.
    MILLRACE_LET(group, comm::open_group());
    MILLRACE_TRY(comm::share_host(*group));
    MILLRACE_TRY(train::share_memory(*group));
    const bool leads = group->rank() == 0;
    if (!leads) {
        base::set_log_source(fmt::format("rank {}: ", group->rank()));
        base::set_log_level(base::LogLevel::warn);
    }
    base::Recipe recipe;
    train::TrainRequest request;
    train::ConsoleOptions options;
    const base::Status ready = group->agree(prepare(given, context, *group, recipe, request, options));
    request.stop = &signals.stop();
    request.saves = &signals.saves();
    request.group = group.get();
    std::optional<train::Console> console;
    if (leads && ready.ok()) console.emplace(options);
    const std::vector<train::Listener*> listeners =
        console ? std::vector<train::Listener*>{&*console} : std::vector<train::Listener*>{};
    const auto trained = ready.ok() ? train::train(recipe, request, listeners) : base::Result<train::RunResult>(ready.error());
    if (!trained.ok()) {
        // Rank 0 speaks and ends first; who has nothing to say waits until mpirun ends it.
        if (leads || !trained.error().message.empty()) group->abandon();
        if (leads || trained.error().message.empty()) return trained.error();
        return base::Error{group->name_of(group->rank()), {}, trained.error().exit_status}.because(trained.error());
    }
    const train::RunResult& result = *trained;
    // A run is as good without it.
    if (leads)
        if (const auto written = ui::write_run_report(result.run); !written.ok())
            MILLRACE_LOG(warn, "{}", written.error().text());
    if (given.json && leads) say(fmt::format("{}\n", result_json(result)));
    return result.signal == 0 ? 0 : 128 + result.signal;
}

/// The run directory is taken here, so that the job finds it when it is run again.
base::Result<int> submit(const TrainArguments& given, const Context& context) {
    MILLRACE_LET(options, sweep::parse_slurm_options(*given.slurm, true));
    MILLRACE_TRY(train::load_recipe(given.recipe, {given.settings, base::recipe_environment()}));
    MILLRACE_LET(out, given.directory(given.recipe));
    if (!given.out && !given.resume) MILLRACE_SET(out, train::claim_run_directory(out));
    std::vector<std::string> words = words_without(context, {"--slurm", "--init", "--out"});
    std::erase(words, "--resume");
    words.insert(words.end(), {"--out", out.string()});
    std::vector<std::string> first;
    if (!given.init.empty()) first = {"--init", given.init};
    return submit_script(sweep::slurm_script(options, words, first, out), out.string() + ".sbatch");
}

/// For a terminal: every key with its default and, below, its meaning, type and range, in lines of at most `width` columns.
std::string key_list(const base::Schema& schema, std::size_t width) {
    constexpr std::size_t kIndent = 4;
    const std::size_t inner = std::max(width, 2 * kIndent) - kIndent;
    std::string out;
    for (const auto& [name, key] : schema.keys()) {
        for (const std::string& line :
             report::wrapped(fmt::format("{} = {}", name, base::value_literal(key, key.initial)), width))
            out += line + "\n";
        const std::string range = key.range_text();
        const std::string meaning = fmt::format("{}; {}{}", key.help, key.type_text(), range.empty() ? "" : ", " + range);
        for (const std::string& line : report::wrapped(meaning, inner)) out += std::string(kIndent, ' ') + line + "\n";
    }
    return out;
}

base::Result<int> print_keys(const TrainArguments& given) {
    MILLRACE_LET(schema, train::schema_of_recipe(given.recipe, {given.settings, base::recipe_environment()}));
    const bool wraps = isatty(STDOUT_FILENO) != 0;
    say(wraps ? key_list(schema, static_cast<std::size_t>(report::terminal_size(STDOUT_FILENO).width))
              : schema.help_text() + "\n");
    return 0;
}

base::Result<int> run_train(const TrainArguments& given, const Context& context) {
    if (given.keys) return print_keys(given);
    if (given.recipe.empty()) return base::Error{"RECIPE is required\nTry: millrace train --help"};
    return given.slurm ? submit(given, context) : train_recipe(given, context);
}

}  // namespace

void add_train(const Command& program) {
    auto [command, given] = program.command<TrainArguments>("train", "train a recipe", run_train);
    command.option("RECIPE", given.recipe, "recipe in TOML, such as those in recipes/");
    given.add_settings(command);
    command.option("--precision", given.precision, "auto, f32, bf16 or f16").one_of({"auto", "f32", "bf16", "f16"});
    command.option("--out DIR", given.out, "run directory (runs/<recipe> unless given)");
    command.flag("--resume", given.resume, "continue the run in --out after its last checkpoint");
    command.option(
        "--init RUN|FILE", given.init,
        "start from these weights, step and optimizer from zero: a run (its best, else its newest) or a safetensors file");
    command.option(
        "--slurm OPTIONS", given.slurm,
        "submit to Slurm: \"nodes=2 ntasks-per-node=8 gpus-per-node=8 time=8:00:00\"; prints the script without sbatch");
    given.add_console(command);
    command.flag("--keys", given.keys, "list every key RECIPE (or one for the first of `millrace models`) may hold, and stop");
    command.footer(R"(Examples:
  millrace train recipes/NAME.toml
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow
  millrace train recipes/NAME.toml --set members=4 --set optim.lr=1e-3,5e-4,2e-4,1e-4 --out runs/four
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow --resume
  millrace train recipes/NAME.toml --set optim.lr=1e-5 --init runs/slow --out runs/tuned

Ctrl-C (SIGTERM) finishes the step, saves and exits with status 130 (143); a second one exits at once. SIGUSR1 saves and goes on.
MILLRACE_CPU=sse2|avx2|avx512|neon forces the kernels of the CPU instead of the fastest that it can run.)");
}

}  // namespace millrace::cli
