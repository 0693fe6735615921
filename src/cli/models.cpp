#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/run_arguments.h"
#include "models/registry.h"
#include "train/model_report.h"
#include "train/recipe_keys.h"

namespace millrace::cli {
namespace {

base::Result<int> run_models(bool as_json) {
    MILLRACE_LET(listed, models::list());
    if (as_json) {
        nlohmann::ordered_json json = nlohmann::ordered_json::array();
        for (const models::Listing& entry : listed)
            json.push_back({{"model", entry.model}, {"preset", entry.preset}, {"parameters", entry.parameters}});
        say(fmt::format("{}\n", base::json_text(json, 1)));
        return 0;
    }
    say(fmt::format("{:<18} {:<13} {:>12}\n", "model", "preset", "parameters"));
    for (const models::Listing& entry : listed)
        say(fmt::format("{:<18} {:<13} {:>12}\n", entry.model, entry.preset,
                        base::print_count(static_cast<std::uint64_t>(entry.parameters))));
    return 0;
}

/// What a recipe makes, without training it.
struct ReportArguments : RecipeArguments {
    bool json = false, timed = false;

    [[nodiscard]] base::Result<train::Setup> set_up() const {
        base::set_log_level(base::LogLevel::warn);
        MILLRACE_LET(read, train::load_recipe(recipe, overrides()));
        return train::set_up(read, true);
    }
};

base::Result<int> run_show(const ReportArguments& given) {
    MILLRACE_LET(setup, given.set_up());
    say(train::model_report(setup, given.recipe, given.json));
    return 0;
}

base::Result<int> run_plan(const ReportArguments& given) {
    MILLRACE_LET(setup, given.set_up());
    MILLRACE_LET(report, train::plan_report(setup, given.recipe, given.timed, given.json));
    say(report);
    return 0;
}

void add_models_show(const Command& models) {
    auto [command, given] =
        models.command<ReportArguments>("show", "print a recipe's model: layers, shapes, parameters, FLOPs, memory", run_show);
    command.option("RECIPE", given.recipe, "recipe in TOML, such as those in recipes/").required();
    given.add_settings(command, "auto, cpu or cuda; beats the recipe");
    command.flag("--json", given.json, "print it as JSON");
    command.footer(R"(Examples:
  millrace models show recipes/NAME.toml
  millrace models show recipes/NAME.toml --set train.batch=512 --json

MFLOP is what a forward pass of one batch takes in matrix products, step what a training step takes. The model is built for the data
that the recipe names. millrace plan RECIPE prints the kernels.)");
}

}  // namespace

void add_models(const Command& program) {
    auto [command, as_json] = program.command<bool>("models", "list models, presets and parameter counts", run_models);
    command.flag("--json", as_json, "print a list of {\"model\", \"preset\", \"parameters\"}");
    command.footer("Counts are for images of 28 x 28 pixels and 10 classes, and for vectors of 768 entries.");
    add_models_show(command);
}

void add_plan(const Command& program) {
    auto [command, given] = program.command<ReportArguments>(
        "plan", "print what a training step will do, kernel by kernel, and what it will hold", run_plan);
    command.option("RECIPE", given.recipe, "recipe in TOML, such as those in recipes/").required();
    command.flag("--time", given.timed, "run every kernel alone and print how long it takes");
    given.add_settings(command, "auto, cpu or cuda; beats the recipe");
    command.flag("--json", given.json, "print the plan as JSON");
    command.footer(R"(Examples:
  millrace plan recipes/NAME.toml
  millrace plan recipes/NAME.toml --set train.batch=512 --time

Forms that could not be taken are named with the reason, those that would take longer with their predicted time.)");
}

}  // namespace millrace::cli
