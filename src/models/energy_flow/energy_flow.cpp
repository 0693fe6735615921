#include "models/energy_flow/energy_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/energy_flow/flow_paths.h"
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/text_scoring.h"
#include "nn/losses.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

double map_scale(const EnergyFlowConfig& config) { return config.surface_scale * std::sqrt(static_cast<double>(config.cells())); }

}  // namespace

double cosine_ceiling(const EnergyFlowConfig& config) {
    return std::sqrt(static_cast<double>(std::min(config.cells(), config.embedding)) / config.embedding);
}

base::Status EnergyFlow::declare(tape::Store& store) {
    MILLRACE_TRY(validate(config_));
    mapper_ = Mapper(store, config_);
    cube_ = Cube(store, config_);
    target_map_ = store.add_frozen("target_map", config_.cells(), config_.embedding, tape::Init::orthonormal(map_scale(config_)));
    if (!config_.text_bridge.enabled) return base::ok();
    if (!sentences_.tokenizer || sentences_.input_tokens < 1 || sentences_.target_tokens < 1)
        return base::Error{"model.text_bridge.enabled = true needs data with sentences"};
    bridge_ = TextBridge(store, config_, sentences_);
    return base::ok();
}

std::string EnergyFlow::spare_memory() {
    if (config_.recompute == Recompute::step) return {};
    config_.recompute = config_.recompute == Recompute::none ? Recompute::gates : Recompute::step;
    cube_.set_recompute(config_.recompute);
    return fmt::format("model.recompute = \"{}\"", name_of(config_.recompute));
}

void EnergyFlow::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const tape::Value x = builder.activation(rows, config_.embedding, "vectors", false);
    const tensor::View targets = source.gather(builder, part, x.view);
    // In stat, whatever the precision: goals are what the model is measured against.
    const tensor::View goals = builder.buffer(1, rows, config_.cells(), builder.stat(), tape::Role::activation, "goals");
    ops::Record map =
        tape::record_of(&ops::dense_forward::def, ops::DenseParams{}, "goals", {targets, builder.store().parameter(target_map_)});
    map.slots[ops::dense_forward::y] = goals;
    builder.append(std::move(map));
    energies_ = mapper_.forward(builder, x);
    logits_ = cube_.forward(builder, energies_);
    nn::mse(builder, logits_, goals);
    watched_.clear();
    if (builder.training()) {
        if (config_.text_bridge.enabled) bridge_.learn(builder, source, part, energies_.view, logits_.view);
        builder.backward();
        watched_ = {cube_.counters()};
        builder.keep(cube_.counters());
        return;
    }
    watch(builder, targets, goals);
    if (config_.text_bridge.enabled) watch_bridge(builder, source, part);
}

void EnergyFlow::build_answer(tape::Builder& builder, const nn::Sentences& inputs) {
    MILLRACE_ASSERT(config_.text_bridge.enabled && !builder.training(),
                    "an answer needs the text bridge and an evaluation program");
    energies_ = bridge_.encode(builder, inputs);
    logits_ = cube_.forward(builder, energies_);
    const tensor::View vectors = read_back(builder, logits_.view, "vectors read back");
    builder.keep(vectors);
    builder.keep(logits_.view);
    const nn::Sentences answers = bridge_.decode(builder, logits_.view);
    watched_ = {answers.ids, answers.lengths, vectors};
}

tensor::View EnergyFlow::read_back(tape::Builder& builder, const tensor::View& surface, const char* name) const {
    const tensor::View vectors = builder.buffer(1, surface.rows, config_.embedding, builder.stat(), tape::Role::activation, name);
    builder.append(tape::record_of(&ops::linear_dgrad::def, ops::LinearGradParams{}, name,
                                   {surface, builder.store().parameter(target_map_), vectors}));
    return vectors;
}

/// What TextScoring takes beside.
void EnergyFlow::watch_bridge(tape::Builder& builder, data::BatchSource& source, data::Part part) {
    const TextBridge::Figures figures = bridge_.measure(builder, source, part, logits_.view);
    watched_.resize(TextScoring::tensors);
    watched_[TextScoring::encoded] = figures.encoded;
    watched_[TextScoring::tally] = figures.tally;
    watched_[TextScoring::targets] = figures.targets;
    watched_[TextScoring::target_lengths] = figures.lengths;
    watched_[TextScoring::answers] = figures.answers.ids;
    watched_[TextScoring::answer_lengths] = figures.answers.lengths;
}

std::vector<Attachment> EnergyFlow::attachments() const {
    if (!config_.text_bridge.enabled) return {};
    return {{TextBridge::kTokenizer, sentences_.tokenizer->bytes()}};
}

std::vector<Component> EnergyFlow::components() const {
    if (!config_.text_bridge.enabled) return {{"energy", ""}};
    return {{"text_bridge", TextBridge::kLayers}, {"energy", ""}};
}

/// What SurfaceScoring takes.
void EnergyFlow::watch(tape::Builder& builder, const tensor::View& targets, const tensor::View& goals) {
    const std::int32_t rows = goals.rows;
    const auto stat = [&](std::int32_t cols, const char* name) {
        return builder.buffer(1, rows, cols, builder.stat(), tape::Role::activation, name);
    };
    const tensor::View energies = stat(config_.cells(), "mapper's surface");
    builder.append(tape::record_of(&ops::copy::def, ops::CopyParams{}, "mapper's surface", {energies_, energies}));
    watched_.resize(SurfaceScoring::tensors);
    watched_[SurfaceScoring::found] = read_back(builder, logits_.view, "vectors read back");
    watched_[SurfaceScoring::mapper_found] = read_back(builder, energies, "mapper's vectors read back");
    watched_[SurfaceScoring::targets] = targets;
    watched_[SurfaceScoring::surface] = logits_.view;
    watched_[SurfaceScoring::energies] = energies;
    watched_[SurfaceScoring::goals] = goals;
    watched_[SurfaceScoring::counters] = cube_.counters();
    for (const tensor::View& view : watched_) builder.keep(view);
}

bool EnergyFlow::build_trace(tape::Builder& builder, data::BatchSource& source, data::Part part) {
    cube_.do_every_step(true);
    build(builder, source, part, 1);
    cube_.do_every_step(false);
    watched_.resize(SurfaceScoring::tensors);  // a picture has no text
    for (const auto* views : {&cube_.tables(), &cube_.moves()})
        for (const tensor::View& view : *views) {
            builder.keep(view);
            watched_.push_back(view);
        }
    return true;
}

record::FlowTrace EnergyFlow::trace_of(const std::vector<std::vector<double>>& tensors) const {
    record::FlowTrace trace;
    trace.width = config_.width;
    trace.height = config_.height;
    trace.depth = config_.depth;
    trace.steps = config_.step_count();
    trace.steps_used = static_cast<std::int32_t>(tensors[SurfaceScoring::counters][ops::flow_counter::steps]);
    trace.input = tensors[SurfaceScoring::energies];
    trace.output = tensors[SurfaceScoring::surface];
    trace.target = tensors[SurfaceScoring::goals];
    double squares = 0, goal = 0;
    for (std::size_t i = 0; i < trace.target.size(); ++i) {
        squares += (trace.output[i] - trace.target[i]) * (trace.output[i] - trace.target[i]);
        goal += trace.target[i] * trace.target[i];
    }
    trace.loss = squares / config_.cells();
    const auto floats = [&](SurfaceScoring::Tensor which) {
        return std::vector<float>(tensors[which].begin(), tensors[which].end());
    };
    const std::vector<float> answer = floats(SurfaceScoring::targets);
    trace.output_cosine = mean_cosine(floats(SurfaceScoring::found), answer, answer.size());
    trace.input_cosine = mean_cosine(floats(SurfaceScoring::mapper_found), answer, answer.size());
    trace.target_cosine = std::sqrt(goal) / map_scale(config_);  // the map is an isometry of its image, the answer has length 1
    const auto tables = tensors.begin() + SurfaceScoring::tensors, moves = tables + trace.steps + 1;
    // After an early stop nothing moves any more.
    trace.paths = flow_paths(config_, {tables, tables + trace.steps_used + 1}, {moves, moves + trace.steps_used});
    lay_by_plane(config_, trace.paths, trace.above, trace.below);
    return trace;
}

std::unique_ptr<Scoring> EnergyFlow::scoring() const {
    if (config_.text_bridge.enabled) return std::make_unique<TextScoring>(config_, sentences_.tokenizer);
    return std::make_unique<SurfaceScoring>(config_);
}

std::string EnergyFlow::description() const {
    std::string text = fmt::format("cube of {} x {} x {}, {} steps, state {} x {}; {} mapper of {} parameters", config_.width,
                                   config_.height, config_.depth, config_.step_count(), config_.layers, config_.hidden,
                                   config_.mapper == MapperKind::deep ? "deep" : "compact", mapper_.parameters());
    if (config_.text_bridge.enabled)
        text += fmt::format("; text bridge of {} tokens, sentences of up to {} and {}", sentences_.tokenizer->vocabulary(),
                            sentences_.input_tokens, sentences_.target_tokens);
    return text;
}

}  // namespace millrace::models
