#include "models/leak_cnn/recipe.h"

#include <fmt/format.h>

#include "models/class_weights.h"
#include "models/families.h"
#include "models/leak_cnn/stored.h"

namespace millrace::models {
namespace {

using record::MetricKind::kGauge;
using record::MetricScope::kTrain;

constexpr record::MetricInfo kLeakMetrics[] = {
    {"segment_f1", "ratio", kGauge, kTrain, "F1 of the class looked for, over windows by their largest logit."},
    {"file_f1", "ratio", kGauge, kTrain, "F1 of the class looked for, over recordings by the votes of their windows."},
    {"file_accuracy", "ratio", kGauge, kTrain, "Share of the recordings that were decided rightly."},
    {"file_precision", "ratio", kGauge, kTrain, "Share of the recordings taken for the class looked for that are of it."},
    {"file_recall", "ratio", kGauge, kTrain, "Share of the recordings of the class looked for that were found."},
    {"file_mcc", "", kGauge, kTrain, "Matthews correlation of decisions and truth, over recordings."},
    {"file_threshold", "ratio", kGauge, kTrain, "Probability from which on a vote counts; chosen on validation."},
    {"file_always_f1", "ratio", kGauge, kTrain, "F1 of answering the class looked for every time."},
};

base::Schema leak_schema(const std::string& preset) {
    using Widths = std::vector<std::int64_t>;
    const bool debug = preset == "debug";
    base::Schema keys;
    keys.integers("channels", debug ? Widths{4, 8, 8} : Widths{32, 64, 128}, "channels of the convolutions")
        .between(1, 4096)
        .length(1, 8);
    keys.integer("hidden", debug ? 16 : 256, "width of the hidden layer").between(1, 1 << 20);
    keys.real("dropout", 0.25, "in front of the hidden layer").at_least(0).below(1);
    keys.choice("loss", "weighted", {"weighted", "focal", "plain"},
                "of the classes: weighted by how rare they are, focal, or every window alike");
    keys.real("boost", 1, "weighted: factor on the weight of the class looked for").above(0).per_member();
    keys.real("gamma", 2, "focal: how much easy windows are damped").between(0, 5).per_member();
    keys.real("alpha", 0.75, "focal: weight of the class looked for; the others share what is left of 1")
        .above(0)
        .below(1)
        .per_member();
    keys.real("auxiliary", 0.5, "weight of the second head's loss; 0: it has no part in training and voting")
        .at_least(0)
        .per_member();
    return keys;
}

void set_leak_defaults(const std::string&, base::Schema& keys) {
    keys.at("optim.name").initial = std::string("adamw");
    keys.at("optim.weight_decay").initial = std::vector<double>{0.01};
    keys.at("optim.clip_norm").initial = std::vector<double>{1.0};
    keys.at("train.batch").initial = std::int64_t{512};
}

base::Result<data::StoredData> stored_data_of(const io::LoadedCheckpoint& checkpoint) {
    MILLRACE_LET(recorded, stored_recordings(checkpoint));
    data::StoredData stored;
    stored.scaling = std::make_shared<const data::Scaling>(std::move(recorded.scaling));
    return stored;
}

base::Result<std::unique_ptr<Model>> make_leak_cnn(const base::Recipe& recipe, const data::Fields& fields) {
    MILLRACE_LET(config, leak_cnn_config(recipe, fields));
    return std::unique_ptr<Model>(std::make_unique<LeakCnn>(std::move(config)));
}

}  // namespace

base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields) {
    LeakCnnConfig config;
    const data::Field *features = data::find_field(fields, "features"), *label = data::find_field(fields, "label");
    if (features != nullptr) {
        config.bands = features->width;
        config.scaling = features->scaling;
    }
    if (label != nullptr && label->classes != nullptr) config.classes = *label->classes;
    config.channels.clear();
    for (std::int64_t width : recipe.integers("model.channels")) config.channels.push_back(static_cast<std::int32_t>(width));
    config.hidden = static_cast<std::int32_t>(recipe.integer("model.hidden"));
    config.dropout = static_cast<float>(recipe.real("model.dropout"));
    const std::string& loss = recipe.text("model.loss");
    config.loss = loss == "focal" ? LossKind::focal : loss == "weighted" ? LossKind::weighted : LossKind::plain;
    MILLRACE_LET(balanced, class_weights(recipe, fields));
    config.balanced = !balanced.empty();
    if (config.balanced && config.loss != LossKind::plain)
        return recipe.bad("train.class_weights",
                          fmt::format("train.class_weights = \"{}\", but model.loss = \"{}\" weighs the classes itself; "
                                      "\"none\", or model.loss = \"plain\", would be right",
                                      recipe.text("train.class_weights"), loss));
    config.boost = recipe.reals("model.boost");
    config.gamma = recipe.reals("model.gamma");
    config.alpha = recipe.reals("model.alpha");
    config.auxiliary = recipe.reals("model.auxiliary");
    return config;
}

Family leak_cnn_family() {
    Family family;
    family.name = "leak_cnn";
    family.presets = {"debug", "base"};
    family.schema = leak_schema;
    family.make = make_leak_cnn;
    family.set_general_defaults = set_leak_defaults;
    family.data = data::DataKind::recordings;
    family.usual = {{"features", data::Field::Kind::real, 64}, {"label", data::Field::Kind::integer, 1, 2}};
    family.stored_data = stored_data_of;
    family.data_commands = {build_leak_command(), pack_command()};
    family.classify = classify_sounds;
    family.metrics = kLeakMetrics;
    family.weighs_classes = true;
    family.measures = {"file_f1", "validation_loss", "file_mcc", "segment_f1", "validation_accuracy"};
    return family;
}

}  // namespace millrace::models
