#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/energy_flow/config.h"
#include "models/energy_flow/energy_flow.h"
#include "models/keys.h"
#include "models/registry.h"

namespace millrace::models {
namespace {

std::int32_t chunk_steps(const EnergyFlowConfig& config, std::int32_t rows, std::int64_t step_bytes) {
    const std::int32_t steps = config.step_count();
    constexpr std::int64_t kBudget = std::int64_t{4} << 30;
    const bool automatic = config.gradient_budget == 0;
    const std::int64_t held = (automatic ? kBudget : config.gradient_budget) / std::max<std::int64_t>(step_bytes, 1);
    const std::int32_t limit = automatic && config.recompute != Recompute::none ? (steps + 3) / 4 : steps;
    std::int64_t most = std::clamp<std::int64_t>(held, 1, limit);
    if (config.skip_arrived) {
        // A chunk is skipped as a whole: eighths of the steps, unless that leaves products too small to be worth it.
        constexpr std::int64_t kWork = std::int64_t{10} << 30;
        const std::int64_t flops = std::int64_t{12} * rows * config.hidden * config.hidden * config.layers;
        most = std::min(most, std::max<std::int64_t>((steps + 7) / 8, kWork / std::max<std::int64_t>(flops, 1)));
    }
    const std::int64_t chunks = (steps + most - 1) / most;  // of equal length, as far as that goes
    return static_cast<std::int32_t>((steps + chunks - 1) / chunks);
}

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

void bridge_keys(Keys& keys, TextBridgeConfig& c) {
    const auto add = [&](const char* name, auto& value, const char* help) -> base::RecipeKey& {
        return keys.add(std::string("text_bridge.") + name, value, help);
    };
    add("enabled", c.enabled, "train the text bridge beside the cube: sentences in, sentences out");
    add("width", c.width, "width of its transformers, a multiple of heads").between(1, 4096);
    add("layers", c.layers, "layers of each transformer").between(1, 64);
    add("heads", c.heads, "heads of each layer's attention").between(1, 256);
    add("inner", c.inner, "width inside each layer's two linear layers").between(1, 16384);
    add("vocabulary", c.vocabulary, "tokens made of the data's text; a small text gives fewer").between(3, 1 << 20);
    add("max_tokens", c.max_tokens, "tokens of a sentence; longer ones are cut").between(2, 4096);
    add("encode_weight", c.encode_weight, "of the loss that leads sentences to the mapper's energies").at_least(0);
    add("decode_weight", c.decode_weight, "of the loss that leads surfaces to the target's tokens").at_least(0);
}

void energy_keys(Keys& keys, EnergyFlowConfig& c) {
    keys.add("width", c.width, "cells of the cube along x").between(2, 4096);
    keys.add("height", c.height, "cells of the cube along y").between(2, 4096);
    keys.add("depth", c.depth, "cells of the cube along z; half of them are the steps unless model.steps says otherwise")
        .between(2, 4096);
    keys.add("hidden", c.hidden, "width of the carrier's state, even").between(2, 16384);
    keys.add("layers", c.layers, "layers of the carrier").between(1, 16);
    keys.add("steps", c.steps, "steps of a flow; 0: half the depth").between(0, 2048);
    keys.add("headroom", c.headroom, "spare rows for spawned flows, as a share of the cells; 0: nothing spawns").between(0, 16);
    keys.add("spawn_length", c.spawn_length, "a longer stride (the cube's edge is 2) leaves children behind").above(0);
    keys.add("max_spawn", c.max_spawn, "most children of one stride").between(0, 16);
    keys.add("arrive", c.arrive, "share of the steps that an undisturbed flow needs").above(0).between(0, 1);
    keys.add("noise", c.noise, "deviation of a move in training, in cells").at_least(0);
    keys.add("surface_scale", c.surface_scale, "root mean square of a target's cells").above(0);
    keys.add("skip_arrived", c.skip_arrived, "leave out steps in which no flow is alive, in time too; the figures stay the same");
    keys.add("early_stop", c.early_stop, "end a pass when enough flows have arrived, or no more do");
    keys.add("min_steps", c.min_steps, "early stop: steps before the first look; 0: the share model.arrive of them")
        .between(0, 2048);
    keys.add("stop_at", c.stop_at, "early stop: share of the flows that have arrived").above(0).between(0, 1);
    keys.add("patience", c.patience, "early stop: steps without another arrival").between(1, 2048);
    keys.add_choice("mapper", c.mapper, {{"compact", MapperKind::compact}, {"deep", MapperKind::deep}},
                    "how vectors become energies: one linear layer, or three with norms between them");
    keys.add_choice("recompute", c.recompute, {{"none", Recompute::none}, {"gates", Recompute::gates}, {"step", Recompute::step}},
                    "what is computed again in the backward pass instead of being kept: nothing, the carrier's gates, all but "
                    "states and flows");
    bridge_keys(keys, c.text_bridge);
    keys.add_bytes(
        "gradient_budget", c.gradient_budget,
        "gate gradients that may wait for the products of the weight gradients; 0B: 4 GiB, a quarter of the steps with "
        "model.recompute");
}

base::Result<std::unique_ptr<Model>> make_energy_flow(const base::Recipe& recipe, const data::Fields& fields) {
    EnergyFlowConfig config = read_keys(energy_keys, recipe);
    const data::Field *vector = data::find_field(fields, "vector"), *inputs = data::find_field(fields, "input_tokens"),
                      *targets = data::find_field(fields, "target_tokens");
    if (vector != nullptr) config.embedding = vector->width;
    MILLRACE_TRY(validate(config));
    TextShape texts;
    if (inputs != nullptr && targets != nullptr) texts = {inputs->tokenizer, inputs->width, targets->width};
    return std::unique_ptr<Model>(std::make_unique<EnergyFlow>(config, std::move(texts)));
}

}  // namespace

std::vector<std::pair<std::int32_t, std::int32_t>> EnergyFlowConfig::chunks(std::int32_t rows, bool training,
                                                                            std::int64_t step_bytes) const {
    const std::int32_t total = step_count();
    const std::int32_t length = training ? chunk_steps(*this, rows, step_bytes) : (total + 7) / 8;
    std::vector<std::pair<std::int32_t, std::int32_t>> found;
    // Undisturbed flows arrive together: where steps are skipped, a border lies there, and the rest is counted off from it.
    const std::int32_t arrival = skip_arrived ? std::min(total, static_cast<std::int32_t>(std::ceil(1 / drift()))) : total;
    for (std::int32_t end = arrival; end > 0; end -= length) found.emplace_back(std::max(0, end - length), end);
    std::reverse(found.begin(), found.end());
    for (std::int32_t first = arrival; first < total; first += length) found.emplace_back(first, std::min(total, first + length));
    return found;
}

const char* name_of(Recompute recompute) {
    constexpr const char* kNames[] = {"none", "gates", "step"};
    return kNames[static_cast<int>(recompute)];
}

base::Status validate(const EnergyFlowConfig& c) {
    const TextBridgeConfig& t = c.text_bridge;
    const std::pair<bool, std::string> rules[] = {
        {c.width >= 2 && c.height >= 2,
         fmt::format("model.width = {} and model.height = {}: a surface needs at least 2 x 2 cells", c.width, c.height)},
        {c.step_count() >= 1, fmt::format("model.depth = {} gives no step; model.depth = 2 would be the least", c.depth)},
        {c.arrive * c.step_count() > 0.5,
         fmt::format("model.arrive = {} of {} steps is less than half a step; a larger model.arrive would be right", c.arrive,
                     c.step_count())},
        {c.hidden % 2 == 0, fmt::format("model.hidden = {} must be even: the energy head has half of it", c.hidden)},
        {!(c.headroom > 0) || c.spawn_length > 0,
         fmt::format("model.spawn_length = {} must be positive when model.headroom > 0", c.spawn_length)},
        {!t.enabled || (t.heads >= 1 && t.width % t.heads == 0),
         fmt::format("model.text_bridge.width = {} must be a multiple of model.text_bridge.heads = {}", t.width, t.heads)},
        {c.gradient_budget >= 0, fmt::format("model.gradient_budget = {} must not be negative", c.gradient_budget)}};
    for (const auto& [obeyed, message] : rules)
        if (!obeyed) return base::Error{message};
    return base::ok();
}

base::Status check_capacity(const EnergyFlowConfig& c, std::int32_t samples) {
    const double needed = static_cast<double>(samples) * c.cells(), capacity = std::floor(needed * (1 + c.headroom));
    if (capacity < needed)
        return base::Error{
            fmt::format("model.headroom = {} gives {:.0f} rows to the {:.0f} flows of {} samples on {} x {} cells; "
                        "model.headroom = 0 would be the least",
                        c.headroom, capacity, needed, samples, c.width, c.height)};
    // Weight gradients go over the rows of all steps at once; each has up to four states.
    const double widest = capacity * (c.step_count() + 1) * 4 * std::max(c.hidden, 2);
    if (constexpr double kMost = 1e12;
        widest > kMost || capacity * (c.step_count() + 1) > std::numeric_limits<std::int32_t>::max())
        return base::Error{
            fmt::format("{} samples on {} x {} cells are {:.0f} flows of {} steps, more than a program can hold; a "
                        "smaller batch would be right",
                        samples, c.width, c.height, capacity, c.step_count())};
    return base::ok();
}

Family energy_flow_family() {
    std::vector<std::string> presets;
    for (const Profile& profile : kProfiles) presets.emplace_back(profile.name);
    return {.name = "energy_flow",
            .presets = std::move(presets),
            .schema =
                [](const std::string& preset) {
                    const Profile& p = profile_of(preset);
                    return schema_of(
                        energy_keys,
                        {.width = p.width, .height = p.height, .depth = p.depth, .hidden = p.hidden, .layers = p.layers});
                },
            .make = make_energy_flow,
            .set_general_defaults =
                [](const std::string& preset, base::Schema& keys) {
                    keys.at("train.batch").initial = std::int64_t{profile_of(preset).batch};
                    keys.at("eval.batch").initial = kEvaluationBatch;
                },
            .data = data::DataKind::pairs,
            .usual = {{"vector", data::Field::Kind::real, kTeacherWidth}, {"goal", data::Field::Kind::real, kTeacherWidth}},
            .token_keys = "model.text_bridge",
            .measures = {"validation_loss", "validation_cosine", "retrieval_at_1"},
            .metrics = kEnergyMetrics,
            .stored_data = stored_texts,
            .pictures = flow_pictures,
            .picture_options = {{"--plot-flows", "N", "how many flows to draw; 48, or all where there are fewer, unless given"}},
            .answer = answer_texts};
}

}  // namespace millrace::models
