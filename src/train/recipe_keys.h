#pragma once
// The keys that a recipe of any model may hold, and those that another key leaves without a meaning.

#include <string>
#include <string_view>
#include <vector>

#include "base/recipe.h"
#include "models/registry.h"

namespace millrace::train {

/// All keys of a family's recipe but those of the model itself (`model.*` beyond name and preset come from the model registry).
base::Schema general_schema(const models::Family& family);

/// The schema of a recipe whose model is `model` in `preset`.
base::Result<base::Schema> schema_for(std::string_view model, std::string_view preset);

/// The schema of the recipe in `path`, or of an empty one when that is empty too, by the model and preset it names.
base::Result<base::Schema> schema_of_recipe(const std::string& path, const base::RecipeOverrides& overrides);

/// Reads a recipe: looks at model.name and model.preset first, then checks everything against that model's schema.
base::Result<base::Recipe> load_recipe(const std::string& path, const base::RecipeOverrides& overrides);
base::Result<base::Recipe> parse_recipe(std::string_view text, const std::string& place, const base::RecipeOverrides& overrides);

/// What a resumed run may change without becoming another run: how long it goes on, how it reports, where it runs.
bool may_change_on_resume(std::string_view key);

/// Refuses to continue `before` as `now`, naming the first key that matters and differs; train.epochs may grow, not shrink.
base::Status check_resumable(const base::Recipe& before, const base::Recipe& now);

/// A line for each key that is not at its default although nothing reads it: data.rotate without data.augment.
std::vector<std::string> idle_keys(const base::Recipe& recipe);

}  // namespace millrace::train
