#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "cli/commands.h"
#include "train/console.h"
#include "train/recipe_keys.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace millrace::cli {
namespace {

struct TrainArguments {
    std::string recipe, device, log_level;
    std::optional<std::string> out, init;
    std::vector<std::string> settings;
    bool resume = false, quiet = false, json = false, keys = false;
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
        json["members"].push_back(std::move(scores));
    }
    return json.dump(1);
}

base::Result<train::RunResult> train_with(const TrainArguments& given, const Context& context, const train::RunSignals& signals) {
    if (!given.log_level.empty()) {
        MILLRACE_LET(level, base::parse_log_level(given.log_level));
        base::set_log_level(level);
    }
    base::RecipeOverrides overrides{given.settings, base::recipe_environment()};
    if (!given.device.empty()) overrides.flags.push_back("device=" + given.device);
    MILLRACE_LET(recipe, train::load_recipe(given.recipe, overrides));
    train::TrainRequest request;
    request.resume = given.resume;
    request.command.assign(context.argv, context.argv + context.argc);
    if (given.out && given.out->empty())
        return base::Error{"names no folder; leave it out for runs/ and the recipe's name", "--out \"\""};
    if (given.init && given.init->empty()) return base::Error{"names no weights; leave it out to draw them", "--init \"\""};
    request.init = given.init.value_or("");
    request.out = given.out.value_or(train::default_run_directory(given.recipe).string());
    request.number_if_taken = !given.out;
    if (given.resume && !given.out) {
        MILLRACE_LET(newest, train::newest_run_directory(request.out));
        request.out = newest;
    }
    request.stop = &signals.stop();
    request.saves = &signals.saves();
    train::ConsoleOptions options;
    options.out = given.json ? stderr : stdout;
    options.live = isatty(STDOUT_FILENO) != 0 && base::stderr_is_terminal() && !given.quiet;
    options.quiet = given.quiet;
    options.detail = base::log_enabled(base::LogLevel::training) ? train::Detail::pace : train::Detail::losses;
    train::Console console(options);
    return train::train(recipe, request, {&console});
}

base::Result<int> run_train(const TrainArguments& given, const Context& context) {
    std::signal(SIGPIPE, SIG_IGN);    // a reader of our output may leave; the run goes on
    const train::RunSignals signals;  // first of all: every thread of the run inherits that they are blocked
    MILLRACE_LET(result, train_with(given, context, signals));
    if (given.json) say(fmt::format("{}\n", result_json(result)));
    return result.signal == 0 ? 0 : 128 + result.signal;
}

base::Result<int> print_keys(const TrainArguments& given) {
    MILLRACE_LET(schema, train::schema_of_recipe(given.recipe, {given.settings, base::recipe_environment()}));
    say(fmt::format("{}\n", schema.help_text()));
    return 0;
}

}  // namespace

void add_train(const Command& program, Context& context) {
    auto given = std::make_shared<TrainArguments>();
    const Command command = program.command("train", "train a recipe");
    command.option("RECIPE", given->recipe, "recipe in TOML, such as those in recipes/");
    command.option("--set", given->settings, "key=value: beats the recipe; may be repeated")
        .one_value_each()
        .placeholder("KEY=VALUE");
    command.option("--device", given->device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    command.option("--out", given->out, "run directory (runs/<recipe> unless given)").placeholder("DIR");
    command.flag("--resume", given->resume, "continue the run in --out after its last checkpoint");
    command
        .option("--init", given->init,
                "start from these weights, step and optimizer from zero: a run (its best, else its newest) or a safetensors file")
        .placeholder("RUN|FILE");
    command.flag("--quiet", given->quiet, "print the closing summary alone");
    command.option("--log-level", given->log_level, "error, warn, info, training, performance, profiling or debug");
    command.flag("--json", given->json, "print the result as JSON on stdout; everything else goes to stderr");
    command.flag("--keys", given->keys, "list every key RECIPE (or one for the first of `millrace models`) may hold, and stop");
    command.footer(R"(Examples:
  millrace train recipes/NAME.toml
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow
  millrace train recipes/NAME.toml --set members=4 --set optim.lr=1e-3,5e-4,2e-4,1e-4 --out runs/four
  millrace train recipes/NAME.toml --set train.epochs=10 --set optim.lr=3e-4 --out runs/slow --resume
  millrace train recipes/NAME.toml --set optim.lr=1e-5 --init runs/slow --out runs/tuned

Ctrl-C (SIGTERM) finishes the step, saves and exits with status 130 (143); a second one exits at once. SIGUSR1 saves and goes on.
MILLRACE_CPU=sse2|avx2|avx512|neon forces the kernels of the CPU instead of the fastest that it can run.)");
    command.action([given, &context]() -> base::Result<int> {
        if (given->keys) return print_keys(*given);
        if (given->recipe.empty()) return base::Error{"RECIPE is required\nTry: millrace train --help"};
        return run_train(*given, context);
    });
}

}  // namespace millrace::cli
