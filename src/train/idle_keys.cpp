#include "train/idle_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/split.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

/// `key` is read where `other` has one of `values`, with spaces between them, alone.
struct Condition {
    const char *key, *other, *values;
};
constexpr Condition kConditions[] = {
    {"data.rotate", "data.augment", "true"},        {"data.shift", "data.augment", "true"},
    {"data.scale", "data.augment", "true"},         {"data.flip", "data.augment", "true"},
    {"optim.beta1", "optim.name", "adam adamw"},    {"optim.beta2", "optim.name", "adam adamw"},
    {"optim.eps", "optim.name", "adam adamw"},      {"optim.momentum", "optim.name", "sgd"},
    {"optim.floor", "optim.schedule", "cosine"},    {"optim.step_epochs", "optim.schedule", "step"},
    {"optim.step_gamma", "optim.schedule", "step"},
};

}  // namespace

std::vector<std::string> idle_keys(const base::Recipe& recipe) {
    const auto schema = schema_for(recipe.text("model.name"), recipe.text("model.preset"));
    if (!schema.ok()) return {};
    const auto usual = base::Recipe::parse("", "", *schema);
    if (!usual.ok()) return {};
    const std::vector<base::RecipeDifference> changed = usual->differences(recipe);
    std::vector<std::string> out;
    for (const auto& [key, other, values] : kConditions) {
        const auto found = std::ranges::find(changed, key, &base::RecipeDifference::name);
        if (found == changed.end()) continue;
        const base::RecipeKey& of = *schema->find(other);
        const std::string now = of.kind == base::KeyKind::boolean ? fmt::format("{}", recipe.boolean(other)) : recipe.text(other);
        const std::vector<std::string> wanted = base::split(values, ' ');
        if (std::ranges::find(wanted, now) != wanted.end()) continue;
        out.push_back(fmt::format("{} = {} changes nothing: it is read where {} is {}, not {}", key, found->right, other,
                                  fmt::join(wanted, " or "), now));
    }
    return out;
}

}  // namespace millrace::train
