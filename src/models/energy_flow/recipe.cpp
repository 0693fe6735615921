#include "models/families.h"

#include "models/energy_flow/energy_flow.h"
#include "models/energy_flow/offers.h"

namespace millrace::models {
namespace {

using record::MetricKind::kGauge;
using record::MetricScope::kTrain;

constexpr record::MetricInfo kEnergyMetrics[] = {
    {"component/energy_ms", "milliseconds", kGauge, kTrain, "Mapper and cube in an instrumented step, there and back."},
    {"component/text_bridge_ms", "milliseconds", kGauge, kTrain, "Text bridge in an instrumented step, there and back."},
    {"validation_cosine", "", kGauge, kTrain,
     "Mean cosine between what the surface says and the answer's vector, on the validation data."},
    {"cosine_ceiling", "", kGauge, kTrain, "Largest cosine that a surface of this many cells can be expected to reach."},
    {"retrieval_at_1", "ratio", kGauge, kTrain,
     "Share of the validation data whose own answer is the nearest of all validation answers."},
    {"mapper_loss", "", kGauge, kTrain, "Loss of the mapper alone: its energies laid on the surface without flows."},
    {"mapper_cosine", "", kGauge, kTrain, "Cosine of the mapper alone."},
    {"mapper_retrieval_at_1", "ratio", kGauge, kTrain, "Retrieval of the mapper alone."},
    {"flow_steps_used", "steps", kGauge, kTrain, "Steps a pass through the cube took, mean over the validation data."},
    {"cell_coverage", "ratio", kGauge, kTrain, "Share of the surface's cells that some flow laid energy on."},
    {"flows_created", "", kGauge, kTrain, "Flows of the validation pass, spawned ones included."},
    {"flows_spawned", "", kGauge, kTrain, "Flows that a long stride left behind."},
    {"flows_refused", "", kGauge, kTrain, "Flows that found no spare row."},
    {"flows_arrived_up", "", kGauge, kTrain, "Flows that ended on the upper plane."},
    {"flows_arrived_down", "", kGauge, kTrain, "Flows that ended on the lower plane."},
    {"flows_projected", "", kGauge, kTrain, "Flows that were still under way after the last step."},
    {"flows_reflected", "", kGauge, kTrain, "Coordinates that a wall mirrored."},
    {"bridge_encode_loss", "", kGauge, kTrain,
     "Text bridge: squared distance of its energies from the mapper's, on the validation data."},
    {"bridge_token_loss", "", kGauge, kTrain, "Text bridge: cross-entropy of a token of the target, the ones before it given."},
    {"bridge_token_accuracy", "ratio", kGauge, kTrain, "Text bridge: share of those tokens that were the likeliest."},
    {"bridge_word_overlap", "ratio", kGauge, kTrain, "Text bridge: words that its answers share with the targets."},
    {"bridge_exact", "ratio", kGauge, kTrain, "Text bridge: share of the answers that are the target to the letter."},
};

constexpr std::int32_t kTeacherWidth = 768;

struct Profile {
    const char* name;
    std::int32_t width, height, depth, hidden, layers;
    std::int32_t batch;
};
constexpr Profile kProfiles[] = {{"debug", 20, 20, 10, 256, 2, 8},
                                 {"experiment", 50, 50, 20, 512, 2, 16},
                                 {"experiment_v2", 28, 28, 40, 512, 3, 16},
                                 {"large", 80, 80, 60, 1024, 3, 64},
                                 {"wide", 100, 100, 50, 1024, 3, 32}};
constexpr std::int64_t kEvaluationBatch = 50;  // a sample has thousands of flows

const Profile& profile_of(const std::string& preset) {
    for (const Profile& profile : kProfiles)
        if (preset == profile.name) return profile;
    MILLRACE_ASSERT(false, "no such preset: " + preset);
    return kProfiles[0];
}

base::Schema bridge_schema() {
    const TextBridgeConfig usual;
    base::Schema keys;
    keys.boolean("enabled", usual.enabled, "train the text bridge beside the cube: sentences in, sentences out");
    keys.integer("width", usual.width, "width of its transformers, a multiple of heads").between(1, 4096);
    keys.integer("layers", usual.layers, "layers of each transformer").between(1, 64);
    keys.integer("heads", usual.heads, "heads of each layer's attention").between(1, 256);
    keys.integer("inner", usual.inner, "width inside each layer's two linear layers").between(1, 16384);
    keys.integer("vocabulary", usual.vocabulary, "tokens made of the data's text; a small text gives fewer").between(3, 1 << 20);
    keys.integer("max_tokens", usual.max_tokens, "tokens of a sentence; longer ones are cut").between(2, 4096);
    keys.real("encode_weight", usual.encode_weight, "of the loss that leads sentences to the mapper's energies").at_least(0);
    keys.real("decode_weight", usual.decode_weight, "of the loss that leads surfaces to the target's tokens").at_least(0);
    return keys;
}

TextBridgeConfig bridge_of(const base::Recipe& recipe) {
    const auto whole = [&](const char* key) {
        return static_cast<std::int32_t>(recipe.integer(std::string("model.text_bridge.") + key));
    };
    TextBridgeConfig config;
    config.enabled = recipe.boolean("model.text_bridge.enabled");
    config.width = whole("width");
    config.layers = whole("layers");
    config.heads = whole("heads");
    config.inner = whole("inner");
    config.vocabulary = whole("vocabulary");
    config.max_tokens = whole("max_tokens");
    config.encode_weight = recipe.real("model.text_bridge.encode_weight");
    config.decode_weight = recipe.real("model.text_bridge.decode_weight");
    return config;
}

base::Schema energy_schema(const std::string& preset) {
    const Profile& p = profile_of(preset);
    base::Schema keys;
    keys.integer("width", p.width, "cells of the cube along x").between(2, 4096);
    keys.integer("height", p.height, "cells of the cube along y").between(2, 4096);
    keys.integer("depth", p.depth, "cells of the cube along z; half of them are the steps unless model.steps says otherwise")
        .between(2, 4096);
    keys.integer("hidden", p.hidden, "width of the carrier's state, even").between(2, 16384);
    keys.integer("layers", p.layers, "layers of the carrier").between(1, 16);
    keys.integer("steps", 0, "steps of a flow; 0: half the depth").between(0, 2048);
    keys.real("headroom", 0, "spare rows for spawned flows, as a share of the cells; 0: nothing spawns").between(0, 16);
    keys.real("spawn_length", 0.5, "a longer stride (the cube's edge is 2) leaves children behind").above(0);
    keys.integer("max_spawn", 1, "most children of one stride").between(0, 16);
    keys.real("arrive", 0.6, "share of the steps that an undisturbed flow needs").above(0).between(0, 1);
    keys.real("noise", 0.1, "deviation of a move in training, in cells").at_least(0);
    keys.real("surface_scale", 0.3, "root mean square of a target's cells").above(0);
    keys.boolean("skip_arrived", true, "leave out steps in which no flow is alive, in time too; the figures stay the same");
    keys.boolean("early_stop", false, "end a pass when enough flows have arrived, or no more do");
    keys.integer("min_steps", 0, "early stop: steps before the first look; 0: the share model.arrive of them").between(0, 2048);
    keys.real("stop_at", 0.95, "early stop: share of the flows that have arrived").above(0).between(0, 1);
    keys.integer("patience", 3, "early stop: steps without another arrival").between(1, 2048);
    keys.choice("mapper", "compact", {"compact", "deep"},
                "how vectors become energies: one linear layer, or three with norms between them");
    keys.choice("recompute", "none", {"none", "gates", "step"},
                "what is computed again in the backward pass instead of being kept: nothing, the carrier's gates, all but states "
                "and flows");
    keys.add("text_bridge", bridge_schema());
    keys.bytes("gradient_budget", "0B",
               "gate gradients that may wait for the products of the weight gradients; 0B: 4 GiB, a quarter of the steps with "
               "model.recompute");
    return keys;
}

void set_energy_defaults(const std::string& preset, base::Schema& keys) {
    const Profile& p = profile_of(preset);
    keys.at("train.batch").initial = std::int64_t{p.batch};
    keys.at("eval.batch").initial = kEvaluationBatch;
}

base::Result<std::unique_ptr<Model>> make_energy_flow(const base::Recipe& recipe, const data::Fields& fields) {
    EnergyFlowConfig config;
    const auto whole = [&](const char* key) { return static_cast<std::int32_t>(recipe.integer(std::string("model.") + key)); };
    config.width = whole("width");
    config.height = whole("height");
    config.depth = whole("depth");
    config.hidden = whole("hidden");
    config.layers = whole("layers");
    const data::Field *vector = data::find_field(fields, "vector"), *inputs = data::find_field(fields, "input_tokens"),
                      *targets = data::find_field(fields, "target_tokens");
    if (vector != nullptr) config.embedding = vector->width;
    config.steps = whole("steps");
    config.headroom = recipe.real("model.headroom");
    config.spawn_length = recipe.real("model.spawn_length");
    config.max_spawn = whole("max_spawn");
    config.arrive = recipe.real("model.arrive");
    config.noise = recipe.real("model.noise");
    config.surface_scale = recipe.real("model.surface_scale");
    config.skip_arrived = recipe.boolean("model.skip_arrived");
    config.early_stop = recipe.boolean("model.early_stop");
    config.min_steps = whole("min_steps");
    config.stop_at = recipe.real("model.stop_at");
    config.patience = whole("patience");
    config.mapper = recipe.text("model.mapper") == "deep" ? MapperKind::deep : MapperKind::compact;
    const std::string& recompute = recipe.text("model.recompute");
    config.recompute = recompute == "step" ? Recompute::step : recompute == "gates" ? Recompute::gates : Recompute::none;
    config.gradient_budget = static_cast<std::int64_t>(recipe.bytes("model.gradient_budget"));
    config.text_bridge = bridge_of(recipe);
    MILLRACE_TRY(validate(config));
    TextShape texts;
    if (inputs != nullptr && targets != nullptr) texts = {inputs->tokenizer, inputs->width, targets->width};
    return std::unique_ptr<Model>(std::make_unique<EnergyFlow>(config, std::move(texts)));
}

}  // namespace

Family energy_flow_family() {
    Family family;
    family.name = "energy_flow";
    for (const Profile& profile : kProfiles) family.presets.emplace_back(profile.name);
    family.schema = energy_schema;
    family.make = make_energy_flow;
    family.set_general_defaults = set_energy_defaults;
    family.data = data::DataKind::pairs;
    family.usual = {{"vector", data::Field::Kind::real, kTeacherWidth}, {"goal", data::Field::Kind::real, kTeacherWidth}};
    family.token_keys = "model.text_bridge";
    family.stored_data = stored_texts;
    family.pictures = flow_pictures;
    family.picture_options = {{"--plot-flows", "N", "how many flows to draw; 48, or all where there are fewer, unless given"}};
    family.answer = answer_texts;
    family.metrics = kEnergyMetrics;
    family.measures = {"validation_loss", "validation_cosine", "retrieval_at_1"};
    return family;
}

}  // namespace millrace::models
