#include "train/lanes.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/split.h"
#include "train/recipe_keys.h"
#include "train/run_settings.h"

namespace millrace::train {
namespace {

/// What all recipes of a model's preset share.
struct Shape {
    base::Schema schema;
    base::Recipe defaults;
    std::vector<std::string> fusible;
};

base::Schema schema_like(const base::Recipe& recipe) {
    auto schema = schema_for(recipe.text("model.name"), recipe.text("model.preset"));
    MILLRACE_ASSERT(schema.ok(), "a checked recipe names its model");
    return std::move(schema).value();
}

/// A recipe of the same model with `flags` on top of the defaults.
base::Result<base::Recipe> defaults_of(const base::Recipe& recipe, const base::Schema& schema, std::vector<std::string> flags) {
    for (const char* key : {"model.name", "model.preset"}) flags.push_back(fmt::format("{}={}", key, recipe.text(key)));
    return base::Recipe::parse("", "", schema, {std::move(flags), {}});
}

Shape make_shape(const base::Recipe& recipe) {
    // Those two have one value each, but are a member's own: kind and length of its schedule.
    Shape shape{schema_like(recipe), recipe, {"optim.schedule", "train.epochs"}};
    auto defaults = defaults_of(recipe, shape.schema, {});
    MILLRACE_ASSERT(defaults.ok(), "defaults are valid");
    shape.defaults = std::move(defaults).value();
    for (const auto& [name, key] : shape.schema.keys())
        if (key.form == base::KeyForm::per_member) shape.fusible.push_back(name);
    return shape;
}

/// Kept: a search asks for every trial, and a schema takes milliseconds.
const Shape& shape_of(const base::Recipe& recipe) {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::string>, Shape> shapes;
    const std::lock_guard lock(mutex);
    const std::pair key(recipe.text("model.name"), recipe.text("model.preset"));
    const auto found = shapes.find(key);
    return found != shapes.end() ? found->second : shapes.emplace(key, make_shape(recipe)).first->second;
}

}  // namespace

std::vector<std::string> fusible_keys(const base::Recipe& recipe) { return shape_of(recipe).fusible; }

base::Recipe structural_part(const base::Recipe& recipe) {
    const Shape& shape = shape_of(recipe);
    base::Recipe part = recipe;
    const bool plain = recipe.text("optim.name") == "sgd" && recipe.real("optim.momentum") == 0;
    for (const std::string& key : shape.fusible)
        if (!plain || key != "optim.momentum") part.take(shape.defaults, key);
    part.take(shape.defaults, "members");
    return part;
}

base::Result<base::Recipe> with_members(const base::Recipe& recipe, int members) {
    MILLRACE_LET(counted, defaults_of(recipe, shape_of(recipe).schema, {fmt::format("members={}", members)}));
    base::Recipe several = recipe;
    several.take(counted, "members");
    return several;
}

base::Result<base::Recipe> member_part(const base::Recipe& recipe, int first, int count) {
    const Shape& shape = shape_of(recipe);
    std::vector<std::string> flags{fmt::format("members={}", count)};
    const auto cut = [&](const std::string& key, const auto& values) {
        if (values.size() > 1)
            flags.push_back(fmt::format("{}={}", key, fmt::join(values.begin() + first, values.begin() + first + count, ",")));
    };
    for (const auto& [name, key] : shape.schema.keys()) {
        if (key.commas_by_member) cut(name, base::split(recipe.text(name), ','));
        if (key.form != base::KeyForm::per_member || name == "seed") continue;
        if (key.kind == base::KeyKind::integer)
            cut(name, recipe.integers(name));
        else
            cut(name, recipe.reals(name));
    }
    cut("seed", read_seeds(recipe));
    MILLRACE_LET(cut_recipe, defaults_of(recipe, shape.schema, flags));
    base::Recipe part = recipe;
    for (const std::string& flag : flags) part.take(cut_recipe, flag.substr(0, flag.find('=')));
    return part;
}

base::Status check_trial(const base::Recipe& recipe) {
    if (recipe.integer("members") != 1)
        return recipe.bad("members", fmt::format("members = {}, but a trial is one member of a lane; members = 1 would be right",
                                                 recipe.integer("members")));
    MILLRACE_TRY(recipe.check_members(1));
    if (recipe.integer("train.steps") != 0)
        return recipe.bad("train.steps",
                          fmt::format("train.steps = {}, but lanes train whole epochs; train.steps = 0 would be right",
                                      recipe.integer("train.steps")));
    if (recipe.boolean("train.debug_nonfinite"))
        return recipe.bad(
            "train.debug_nonfinite",
            "train.debug_nonfinite ends a run at the first value that is not finite, but lanes go on beside a trial "
            "that diverges; false would be right");
    for (const char* key : {"structure.operations", "data.domains"})
        if (recipe.has(key) && !recipe.text(key).empty())
            return recipe.bad(
                key, fmt::format("{} = \"{}\" changes what all lanes train at once; \"\" would be right", key, recipe.text(key)));
    return base::ok();
}

}  // namespace millrace::train
