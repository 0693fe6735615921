#include <fmt/format.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/run_arguments.h"
#include "train/recipe_keys.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace millrace::cli {
namespace {

struct TrainArguments : RunArguments {
    std::string recipe, device;
    std::optional<std::string> init;
    std::vector<std::string> settings;
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
    return json.dump(1);
}

base::Result<train::RunResult> train_with(const TrainArguments& given, const Context& context, const train::RunSignals& signals) {
    MILLRACE_LET(options, given.console());
    base::RecipeOverrides overrides{given.settings, base::recipe_environment()};
    if (!given.device.empty()) overrides.flags.push_back("device=" + given.device);
    MILLRACE_LET(recipe, train::load_recipe(given.recipe, overrides));
    train::TrainRequest request;
    request.resume = given.resume;
    request.command.assign(context.argv, context.argv + context.argc);
    if (given.init && given.init->empty()) return base::Error{"names no weights; leave it out to draw them", "--init \"\""};
    request.init = given.init.value_or("");
    MILLRACE_SET(request.out, given.directory(given.recipe, "recipe"));
    request.number_if_taken = !given.out;
    request.stop = &signals.stop();
    request.saves = &signals.saves();
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
    given->add_console(command);
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
