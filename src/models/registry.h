#pragma once
// The model families by name, with their presets and recipe keys.
//
//     MILLRACE_LET(keys, models::schema("collective", "debug"));   // keys without prefix
//     schema.add("model", keys);                                   // model.name, model.preset, model.n_experts, ...
//     MILLRACE_LET(model, models::make(recipe, {784, 10}));

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "data/data_set.h"
#include "models/model.h"

namespace millrace::models {

struct Family {
    std::string name;
    std::vector<std::string> presets;
    base::Schema (*schema)(const std::string& preset);  ///< the family's own keys, defaults by preset
    base::Result<std::unique_ptr<Model>> (*make)(const base::Recipe& recipe, const data::DataShape& shape);
    void (*set_general_defaults)(const std::string& preset,
                                 base::Schema& keys) = nullptr;  ///< of keys outside [model]; null: none
    data::DataKind data = data::DataKind::images;
    data::DataShape usual = {};  ///< what parameters are counted for
    /// The keys of a recipe (`<sentences>.enabled`, `.vocabulary`, `.max_tokens`) that ask for the pairs' sentences as numbers;
    /// empty: the family reads none.
    std::string sentences = {};
    /// What the best weights may be best at, the usual choice first: "validation_loss" or a figure of the scoring, of which more
    /// is better.
    std::vector<std::string> measures = {"validation_accuracy", "validation_loss"};
};

const std::vector<Family>& families();
/// An unknown name is refused with the nearest.
base::Result<const Family*> find_family(const std::string& name);

/// `name` and `preset` as keys of their own, and the family's keys with the preset's defaults. An unknown name is refused with
/// the nearest.
base::Result<base::Schema> schema(const std::string& name, const std::string& preset);

/// The model that a recipe (with the keys above under "model.") asks for.
base::Result<std::unique_ptr<Model>> make(const base::Recipe& recipe, const data::DataShape& shape);

struct Listing {
    std::string model, preset;
    std::int64_t parameters = 0;
};
/// Every family with every preset, for its usual shape of the data.
base::Result<std::vector<Listing>> list();

/// Trainable parameters of a model nobody has declared yet; the model cannot be used afterwards.
base::Result<std::int64_t> count_parameters(std::unique_ptr<Model> model);

}  // namespace millrace::models
