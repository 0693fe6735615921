#include "models/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"
#include "models/registry.h"
#include "models/weights.h"

namespace millrace::models {
namespace {

std::vector<Family>& registered() {
    static std::vector<Family> all = [] {
        std::vector<Family> built_in{collective_family(), cnn_family(),         energy_flow_family(),
                                     leak_cnn_family(),   transformer_family(), k1_family()};
        const std::vector<Family> baselines = baseline_families();
        built_in.insert(built_in.begin() + 1, baselines.begin(), baselines.end());
        for (const Family& family : built_in) record::add_metrics(family.metrics);
        return built_in;
    }();
    return all;
}

base::Error unknown(const char* key, const std::string& given, const std::vector<std::string>& known) {
    const std::string nearest = base::nearest_name(given, known);
    return base::Error{fmt::format("{} = \"{}\" is not known{}; known are {}", key, given,
                                   nearest.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", nearest),
                                   fmt::join(known, ", "))};
}

}  // namespace

const std::vector<Family>& families() { return registered(); }

void add_family(Family family) {
    std::vector<Family>& all = registered();
    std::erase_if(all, [&](const Family& other) { return other.name == family.name; });
    record::add_metrics(family.metrics);
    all.push_back(std::move(family));
}

std::vector<data::DataCommand> data_commands() {
    std::vector<data::DataCommand> all;
    for (const Family& family : families()) all.insert(all.end(), family.data_commands.begin(), family.data_commands.end());
    return all;
}

base::Result<const Family*> find_family(const std::string& name) {
    std::vector<std::string> known;
    for (const Family& family : families()) {
        if (family.name == name) return &family;
        known.push_back(family.name);
    }
    return unknown("model.name", name, known);
}

base::Result<base::Schema> schema(const std::string& name, const std::string& preset) {
    MILLRACE_LET(family, find_family(name));
    if (std::find(family->presets.begin(), family->presets.end(), preset) == family->presets.end())
        return unknown("model.preset", preset, family->presets);
    base::Schema keys = family->schema(preset);
    std::vector<std::string> names;
    for (const Family& each : families()) names.push_back(each.name);
    keys.choice("name", name, names, "the model family");
    keys.choice("preset", preset, family->presets, "its size; sets the defaults of the other model keys");
    return keys;
}

base::Result<std::unique_ptr<Model>> make(const base::Recipe& recipe, const data::Fields& fields) {
    MILLRACE_LET(family, find_family(recipe.text("model.name")));
    return family->make(recipe, fields);
}

base::Result<data::StoredData> stored_data(const base::Recipe& recipe, const io::LoadedCheckpoint& checkpoint) {
    MILLRACE_LET(family, find_family(recipe.text("model.name")));
    data::StoredData stored;
    if (family->stored_data != nullptr) MILLRACE_SET(stored, family->stored_data(checkpoint));
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    const io::TensorView* tensor = file.find(kPreparation);
    if (tensor == nullptr || tensor->type != io::ElementType::kU8) return stored;
    MILLRACE_SET(stored.preparation, read_text(file, *tensor));
    return stored;
}

base::Result<std::vector<Listing>> list() {
    data::Fields usual_images{{"image", data::Field::Kind::real, 28 * 28}, {"label", data::Field::Kind::integer, 1, 10}};
    usual_images.front().shape = {28, 28, 1};
    std::vector<Listing> listed;
    for (const Family& family : families())
        for (const std::string& preset : family.presets) {
            MILLRACE_LET(keys, schema(family.name, preset));
            base::Schema below;
            below.add("model", keys);
            MILLRACE_LET(recipe, base::Recipe::parse("", "defaults", below));
            MILLRACE_LET(model, make(recipe, family.usual.empty() ? usual_images : family.usual));
            MILLRACE_LET(parameters, count_parameters(std::move(model)));
            listed.push_back({family.name, preset, parameters});
        }
    return listed;
}

base::Result<std::int64_t> count_parameters(std::unique_ptr<Model> model) {
    MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::ref, {}));
    tape::StoreOptions options;
    options.precision = tape::Precision::f64;
    tape::Store store(*backend, options);
    MILLRACE_TRY(model->declare(store));
    return store.trainable_count();
}

}  // namespace millrace::models
