#include "base/json.h"
#include "models/registry.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
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

struct ShowArguments {
    std::string recipe, device;
    std::vector<std::string> settings;
    bool json = false;
};

base::Result<int> run_show(const ShowArguments& given) {
    base::set_log_level(base::LogLevel::warn);
    base::RecipeOverrides overrides{given.settings, base::recipe_environment()};
    if (!given.device.empty()) overrides.flags.push_back("device=" + given.device);
    MILLRACE_LET(recipe, train::load_recipe(given.recipe, overrides));
    MILLRACE_LET(setup, train::set_up(recipe, true));
    say(train::model_report(setup, given.recipe, given.json));
    return 0;
}

void add_models_show(const Command& models) {
    auto given = std::make_shared<ShowArguments>();
    const Command command = models.command("show", "print a recipe's model: layers, shapes, parameters, FLOPs, memory");
    command.option("RECIPE", given->recipe, "recipe in TOML, such as those in recipes/").required();
    command.option("--set", given->settings, "key=value: beats the recipe; may be repeated")
        .one_value_each()
        .placeholder("KEY=VALUE");
    command.option("--device", given->device, "auto, cpu or cuda; beats the recipe").one_of({"auto", "cpu", "cuda"});
    command.flag("--json", given->json, "print it as JSON");
    command.footer(R"(Examples:
  millrace models show recipes/NAME.toml
  millrace models show recipes/NAME.toml --set train.batch=512 --json

MFLOP is what a forward pass of one batch takes in matrix products, step what a training step takes. The model is built for the data
that the recipe names. millrace plan RECIPE prints the kernels.)");
    command.action([given] { return run_show(*given); });
}

}  // namespace

void add_models(const Command& program) {
    auto as_json = std::make_shared<bool>(false);
    const Command command = program.command("models", "list models, presets and parameter counts");
    command.flag("--json", *as_json, "print a list of {\"model\", \"preset\", \"parameters\"}");
    command.footer("Counts are for images of 28 x 28 pixels and 10 classes, and for vectors of 768 entries.");
    command.action([as_json] { return run_models(*as_json); });
    add_models_show(command);
}

}  // namespace millrace::cli
