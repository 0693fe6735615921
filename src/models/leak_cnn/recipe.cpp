#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "data/command.h"
#include "data/makers.h"
#include "data/recordings/recording_set.h"
#include "data/sound/sound_set.h"
#include "models/keys.h"
#include "models/leak_cnn/leak_cnn.h"
#include "models/registry.h"
#include "models/task.h"
#include "models/weights.h"

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

void leak_keys(Keys& keys, LeakCnnConfig& c) {
    keys.add("channels", c.channels, "channels of the convolutions").between(1, 4096).length(1, 8);
    keys.add("hidden", c.hidden, "width of the hidden layer").between(1, 1 << 20);
    keys.add("dropout", c.dropout, "in front of the hidden layer").at_least(0).below(1);
    keys.add_choice("loss", c.loss, {{"weighted", LossKind::weighted}, {"focal", LossKind::focal}, {"plain", LossKind::plain}},
                    "of the classes: weighted by how rare they are, focal, or every window alike");
    keys.add_per_member("boost", c.boost, "weighted: factor on the weight of the class looked for").above(0);
    keys.add_per_member("gamma", c.gamma, "focal: how much easy windows are damped").between(0, 5);
    keys.add_per_member("alpha", c.alpha, "focal: weight of the class looked for; the others share what is left of 1")
        .above(0)
        .below(1);
    keys.add_per_member("auxiliary", c.auxiliary, "weight of the second head's loss; 0: it has no part in training and voting")
        .at_least(0);
}

bool sound(const RecordingData& d) {
    bool fine = !d.classes.names.empty() && d.classes.positive >= 0 &&
                static_cast<std::size_t>(d.classes.positive) < d.classes.names.size() && !d.scaling.mean.empty() &&
                d.scaling.mean.size() == d.scaling.deviation.size();
    for (const std::int32_t count : d.classes.together) fine = fine && count > 0;
    for (const float value : d.scaling.mean) fine = fine && std::isfinite(value);
    for (const float value : d.scaling.deviation) fine = fine && std::isfinite(value) && value > 0;
    return fine;
}

constexpr std::size_t kNamed = 20;  // skipped recordings that are named; recordings.csv has all

enum Given : std::size_t { kFolder, kOut, kPositive, kSplit, kSeed, kThreads, kWaveform, kRepeat };

void name_skipped(const std::vector<data::SkippedFile>& skipped) {
    for (std::size_t i = 0; i < std::min(kNamed, skipped.size()); ++i)
        MILLRACE_LOG(warn, "skipped {}: {}", skipped[i].name, skipped[i].reason);
    if (skipped.size() > kNamed) MILLRACE_LOG(warn, "and {} more were skipped", skipped.size() - kNamed);
}

base::Result<std::string> build(const data::CommandOptions& given, const data::CommandProgress& progress) {
    data::SoundSetOptions options;
    MILLRACE_SET(options.shares, data::parse_shares(given[kSplit].as<std::string>()));
    options.seed = given[kSeed].as<std::uint64_t>();
    options.positive = given[kPositive].as<std::string>();
    options.threads = static_cast<int>(given[kThreads].as<std::uint32_t>());
    options.waveform = given[kWaveform].as<bool>();
    MILLRACE_LET(source, data::sound_source(given[kFolder].as<std::string>(), given[kRepeat].as<bool>()));
    const std::string& out = given[kOut].as<std::string>();
    MILLRACE_LET(report, data::make_sound_set(out, source, options, progress));
    name_skipped(report.skipped);
    return data::summary_of(out, report);
}

/// `millrace data build-leak`: the family's data from recordings in class folders.
data::DataCommand build_leak_command() {
    return {"build-leak",
            "mel windows of WAV and FLAC recordings in class folders, split by recording",
            "Examples:\n  millrace data build-leak recordings --out data/leak\n"
            "  millrace data build-leak recordings --out data/binary --positive LEAK --split 0.8,0.1,0.1",
            {{"WAV_DIR", "folder with a folder of recordings per class", std::string(), {}, true},
             {"--out", "folder to write", std::string(), "PATH", true},
             {"--positive", "make it binary: this class against all others", std::string(), "CLASS"},
             {"--split", "shares of training, validation and test", std::string("0.7,0.2,0.1")},
             {"--seed", "decides which recordings go where", data::SoundSetOptions().seed},
             {"--threads", "0: one per processor", std::uint32_t{0}},
             {"--waveform", "store the samples beside the mel windows", false},
             {"--repeat", "repeat recordings shorter than 10 s instead of padding them with silence", false}},
            build};
}

/// `millrace data pack`: a set mixed for streaming.
data::DataCommand pack_command() {
    return {"pack",
            "copy a set of recordings with its training part in random order, for streaming",
            "Examples:\n  millrace data pack data/leak --out data/leak-packed",
            {{"FOLDER", "folder with TRAINING_DATASET.H5", std::string(), {}, true},
             {"--out", "folder to write", std::string(), "PATH", true},
             {"--seed", "decides the order", data::kMakerSeed}},
            [](const data::CommandOptions& given, const data::CommandProgress& progress) {
                return data::pack_recordings(given[0].as<std::string>(), given[1].as<std::string>(), given[2].as<std::uint64_t>(),
                                             progress);
            }};
}

}  // namespace

base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields) {
    LeakCnnConfig config = read_keys(leak_keys, recipe);
    const data::Field *features = data::find_field(fields, "features"), *label = data::find_field(fields, "label");
    if (features != nullptr) {
        config.bands = features->width;
        config.scaling = features->scaling;
    }
    if (label != nullptr && label->classes != nullptr) config.classes = *label->classes;
    MILLRACE_LET(balanced, class_weights(recipe, fields));
    config.balanced = !balanced.empty();
    if (config.balanced && config.loss != LossKind::plain)
        return recipe.bad("train.class_weights",
                          fmt::format("train.class_weights = \"{}\", but model.loss = \"{}\" weighs the classes itself; "
                                      "\"none\", or model.loss = \"plain\", would be right",
                                      recipe.text("train.class_weights"), recipe.text("model.loss")));
    return config;
}

Family leak_cnn_family() {
    return {.name = "leak_cnn",
            .presets = {"debug", "base"},
            .schema =
                [](const std::string& preset) {
                    return schema_of(leak_keys,
                                     preset == "debug" ? LeakCnnConfig{.hidden = 16, .channels = {4, 8, 8}} : LeakCnnConfig{});
                },
            .make = [](const base::Recipe& recipe, const data::Fields& fields) -> base::Result<std::unique_ptr<Model>> {
                MILLRACE_LET(config, leak_cnn_config(recipe, fields));
                return std::unique_ptr<Model>(std::make_unique<LeakCnn>(std::move(config)));
            },
            .set_general_defaults =
                [](const std::string&, base::Schema& keys) {
                    keys.at("optim.name").initial = std::string("adamw");
                    keys.at("optim.weight_decay").initial = std::vector<double>{0.01};
                    keys.at("optim.clip_norm").initial = std::vector<double>{1.0};
                    keys.at("train.batch").initial = std::int64_t{512};
                },
            .data = data::DataKind::recordings,
            .usual = {{"features", data::Field::Kind::real, 64}, {"label", data::Field::Kind::integer, 1, 2}},
            .measures = {"file_f1", "validation_loss", "file_mcc", "segment_f1", "validation_accuracy"},
            .weighs_classes = true,
            .metrics = kLeakMetrics,
            .stored_data = [](const io::LoadedCheckpoint& checkpoint) -> base::Result<data::StoredData> {
                MILLRACE_LET(recorded, stored_recordings(checkpoint));
                data::StoredData stored;
                stored.scaling = std::make_shared<const data::Scaling>(std::move(recorded.scaling));
                return stored;
            },
            .classify = classify_sounds,
            .data_commands = {build_leak_command(), pack_command()}};
}

std::string encode(const RecordingData& data) {
    return base::json_text(nlohmann::ordered_json{{"classes", data.classes.names},
                                                  {"positive", data.classes.positive},
                                                  {"together", data.classes.together},
                                                  {"repeats", data.classes.repeats},
                                                  {"mean", data.scaling.mean},
                                                  {"deviation", data.scaling.deviation}});
}

base::Result<RecordingData> decode(const std::string& text, const std::string& place) {
    RecordingData data;
    try {
        const auto parsed = base::json_or_throw(text);
        parsed.at("classes").get_to(data.classes.names);
        parsed.at("positive").get_to(data.classes.positive);
        parsed.at("together").get_to(data.classes.together);
        data.classes.repeats = parsed.value("repeats", false);
        parsed.at("mean").get_to(data.scaling.mean);
        parsed.at("deviation").get_to(data.scaling.deviation);
    } catch (const nlohmann::json::exception& e) {
        return base::Error{fmt::format("no description of recordings: {}", e.what()), place};
    }
    if (!sound(data))
        return base::Error{
            "the description of recordings contradicts itself: one mean and one positive deviation per feature, and a "
            "positive class among the classes, would be right",
            place};
    return data;
}

base::Result<RecordingData> stored_recordings(const io::LoadedCheckpoint& checkpoint) {
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    const io::TensorView* bytes = file.find(kRecordingData);
    if (bytes == nullptr || bytes->type != io::ElementType::kU8)
        return base::Error{fmt::format("tensor {} with the description of the recordings is missing", kRecordingData),
                           file.place()};
    MILLRACE_LET(text, read_text(file, *bytes));
    return decode(text, fmt::format("{}: {}", file.place().string(), kRecordingData));
}

}  // namespace millrace::models
