#pragma once
// The model families by name, with their presets and recipe keys.
//
//     MILLRACE_LET(keys, models::schema("collective", "debug"));   // keys without prefix
//     schema.add("model", keys);                                   // model.name, model.preset, model.n_experts, ...
//     MILLRACE_LET(model, models::make(recipe, source.fields()));

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "data/command.h"
#include "data/fields.h"
#include "models/capabilities.h"
#include "record/metric_table.h"

namespace millrace::models {

struct Family {
    std::string name;
    std::vector<std::string> presets;
    base::Schema (*schema)(const std::string& preset);  ///< the family's own keys, defaults by preset
    base::Result<std::unique_ptr<Model>> (*make)(const base::Recipe& recipe, const data::Fields& fields);
    void (*set_general_defaults)(const std::string& preset,
                                 base::Schema& keys) = nullptr;  ///< of keys outside [model]; null: none
    data::DataKind data = data::DataKind::samples;
    data::Fields usual = {};  ///< what parameters are counted for; empty: images of 28 x 28 pixels and 10 classes
    /// The keys of a recipe (`<token_keys>.enabled`, `.vocabulary`, `.max_tokens`) that ask for texts as tokens; empty: the
    /// family reads none.
    std::string token_keys = {};
    /// What the best weights may be best at, the usual choice first: "validation_loss" or a figure of the scoring, of which more
    /// is better.
    std::vector<std::string> measures = {"validation_accuracy", "validation_loss", "macro_f1"};

    bool weighs_classes = false;  ///< reads train.class_weights (task.h)

    std::span<const record::MetricInfo> metrics = {};  ///< that its scoring and components bring along

    // What a family may offer (capabilities.h); null: it does not.
    /// What a checkpoint says about the data.
    base::Result<data::StoredData> (*stored_data)(const io::LoadedCheckpoint& checkpoint) = nullptr;
    std::unique_ptr<Pictures> (*pictures)(Model& model) = nullptr;
    std::vector<EvalOption> picture_options = {};
    base::Result<TextReport> (*answer)(const TextRequest& request) = nullptr;
    base::Result<PromptReport> (*go_on)(const PromptRequest& request) = nullptr;
    base::Result<ClassifyReport> (*classify)(const ClassifyRequest& request) = nullptr;
    Structure structure = {};
    RunReport (*run_report)(const Model& model, tape::Store& store) = nullptr;
    std::vector<data::DataCommand> data_commands = {};  ///< below `millrace data`: they make the family's data
};

/// Those that come with the library, then those added.
const std::vector<Family>& families();
/// Before anything else looks at the registry. A name that is taken is replaced.
void add_family(Family family);
/// What the families add to `millrace data`.
std::vector<data::DataCommand> data_commands();
/// An unknown name is refused with the nearest.
base::Result<const Family*> find_family(const std::string& name);

/// `name` and `preset` as keys of their own, and the family's keys with the preset's defaults. An unknown name is refused with
/// the nearest.
base::Result<base::Schema> schema(const std::string& name, const std::string& preset);

/// The model that a recipe (with the keys above under "model.") asks for.
base::Result<std::unique_ptr<Model>> make(const base::Recipe& recipe, const data::Fields& fields);

/// What a checkpoint says about the data, by the family that the recipe names.
base::Result<data::StoredData> stored_data(const base::Recipe& recipe, const io::LoadedCheckpoint& checkpoint);

struct Listing {
    std::string model, preset;
    std::int64_t parameters = 0;
};
/// Every family with every preset, for its usual shape of the data.
base::Result<std::vector<Listing>> list();

/// Trainable parameters of a model that is not declared yet; the model cannot be used afterwards.
base::Result<std::int64_t> count_parameters(std::unique_ptr<Model> model);

// The entries of the families that come with the library. Each is defined beside its family's recipe keys.
std::vector<Family> baseline_families();
Family cnn_family();
Family collective_family();
Family energy_flow_family();
Family k1_family();
Family leak_cnn_family();
Family transformer_family();

}  // namespace millrace::models
