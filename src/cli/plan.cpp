#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "train/model_report.h"
#include "train/recipe_keys.h"

namespace millrace::cli {
namespace {

struct PlanArguments {
    std::string recipe, device;
    std::vector<std::string> settings;
    bool json = false, timed = false;
};

base::Result<int> run_plan(const PlanArguments& given) {
    base::set_log_level(base::LogLevel::warn);
    base::RecipeOverrides overrides{given.settings, base::recipe_environment()};
    if (!given.device.empty()) overrides.flags.push_back("device=" + given.device);
    MILLRACE_LET(recipe, train::load_recipe(given.recipe, overrides));
    MILLRACE_LET(setup, train::set_up(recipe, true));
    MILLRACE_LET(report, train::plan_report(setup, given.recipe, given.timed, given.json));
    say(report);
    return 0;
}

}  // namespace

void add_plan(const Command& program) {
    auto given = std::make_shared<PlanArguments>();
    const Command command =
        program.command("plan", "print what a training step will do, kernel by kernel, and what it will hold");
    command.option("RECIPE", given->recipe, "recipe in TOML, such as those in recipes/").required();
    command.flag("--time", given->timed, "run every kernel alone and print how long it takes");
    command.option("--set", given->settings, "key=value: beats the recipe; may be repeated")
        .one_value_each()
        .placeholder("KEY=VALUE");
    command.option("--device", given->device, "auto, cpu or cuda; beats the recipe").one_of({"auto", "cpu", "cuda"});
    command.flag("--json", given->json, "print the plan as JSON");
    command.footer(R"(Examples:
  millrace plan recipes/NAME.toml
  millrace plan recipes/NAME.toml --set train.batch=512 --time

Forms that could not be taken are named with the reason, those that would take longer with their predicted time.)");
    command.action([given] { return run_plan(*given); });
}

}  // namespace millrace::cli
