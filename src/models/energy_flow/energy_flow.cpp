#include "models/energy_flow/energy_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/energy_flow/flow_trace.h"
#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/scoring.h"
#include "nn/losses.h"
#include "nn/pointwise.h"
#include "ops/activation.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

constexpr double kStart = 0.02;                 // energies of a new mapper
constexpr std::int32_t kNarrowestMapper = 384;  // of the deep mapper's first hidden layer

nn::DenseOptions normal(std::int32_t in, std::int32_t out, ops::Activation activation, double deviation) {
    return nn::linear(in, out, activation, tape::Init::normal(deviation));
}

double map_scale(const EnergyFlowConfig& config) { return config.surface_scale * std::sqrt(static_cast<double>(config.cells())); }

}  // namespace

Mapper::Mapper(tape::Store& store, const EnergyFlowConfig& config) {
    const std::int64_t before = store.trainable_count();
    const std::int32_t cells = config.cells();
    if (config.mapper == MapperKind::compact) {
        last_ = nn::Dense(store, {"mapper"}, {}, normal(config.embedding, cells, ops::Activation::tanh, kStart));
    } else {
        const std::int32_t widths[] = {std::max(kNarrowestMapper, 2 * cells), 2 * cells};
        const float dropouts[] = {0.1f, 0.05f};
        std::int32_t in = config.embedding;
        // The names of a PyTorch Sequential: linear, GELU, norm, dropout.
        for (int i = 0; i < 2; ++i) {
            Stage stage;
            stage.linear = nn::Dense(store, {fmt::format("mapper.{}", 4 * i)}, {},
                                     normal(in, widths[i], ops::Activation::gelu, 1 / std::sqrt(3.0 * in)));
            stage.norm = nn::LayerNorm(store, fmt::format("mapper.{}", 4 * i + 2), widths[i]);
            stage.dropout = dropouts[i];
            stages_.push_back(stage);
            in = widths[i];
        }
        // Its input has length sqrt(in), a sentence vector length 1.
        last_ = nn::Dense(store, {"mapper.8"}, {},
                          normal(in, cells, ops::Activation::tanh, kStart / std::sqrt(static_cast<double>(in))));
    }
    parameters_ = store.trainable_count() - before;
}

tape::Value Mapper::forward(tape::Builder& builder, const tape::Value& vectors) const {
    tape::Value x = vectors;
    for (const Stage& stage : stages_) {
        x = stage.norm.forward(builder, stage.linear.forward(builder, x));
        if (builder.training()) x = nn::pointwise(builder, x, {ops::Activation::none, stage.dropout}, "mapper dropout");
    }
    return last_.forward(builder, x);
}

double cosine_ceiling(const EnergyFlowConfig& config) {
    return std::sqrt(static_cast<double>(std::min(config.cells(), config.embedding)) / config.embedding);
}

base::Status EnergyFlow::declare(tape::Store& store) {
    MILLRACE_TRY(validate(config_));
    mapper_ = Mapper(store, config_);
    cube_ = Cube(store, config_);
    target_map_ = store.add_matrix({"target_map"}, config_.cells(), config_.embedding,
                                   tape::Init::orthonormal(map_scale(config_)), tape::kFrozen);
    if (!config_.text_bridge.enabled) return base::ok();
    if (!texts_.tokenizer || texts_.input_tokens < 1 || texts_.target_tokens < 1)
        return base::Error{"model.text_bridge.enabled = true needs data with sentences"};
    bridge_ = TextBridge(store, config_, texts_);
    return base::ok();
}

std::vector<std::string> EnergyFlow::memory_levels() const {
    std::vector<std::string> levels;
    for (const Recompute level : {Recompute::gates, Recompute::step})
        if (level > config_.recompute) levels.push_back(fmt::format("model.recompute = \"{}\"", name_of(level)));
    return levels;
}

std::optional<StepWork> EnergyFlow::step_work(const std::vector<std::vector<double>>& kept, std::int32_t rows) const {
    const std::vector<double>& counters = kept.front();
    const double steps = counters[ops::flow_counter::steps];
    return StepWork{counters[ops::flow_counter::flow_steps], static_cast<double>(config_.rows(rows)) * config_.step_count(),
                    steps, steps == config_.step_count()};
}

data::Fields EnergyFlow::wants() const {
    constexpr auto kInteger = data::Field::Kind::integer;
    data::Fields wants{{"vector", data::Field::Kind::real, config_.embedding},
                       {"goal", data::Field::Kind::real, config_.embedding}};
    if (config_.text_bridge.enabled)
        for (const data::Field& field : data::Fields{{"input_tokens", kInteger, texts_.input_tokens},
                                                     {"input_length", kInteger, 1},
                                                     {"target_tokens", kInteger, texts_.target_tokens},
                                                     {"target_length", kInteger, 1}})
            wants.push_back(field);
    return wants;
}

Outputs EnergyFlow::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const tape::Value x = builder.activation(rows, config_.embedding, "vectors", false);
    // In stat, whatever the precision: goals are what the model is measured against.
    const auto stat = [&](std::int32_t cols, const char* name) {
        return builder.buffer(1, rows, cols, builder.stat(), tape::Role::activation, name);
    };
    const tensor::View targets =
        source.gather(builder, part, rows, {{"vector", x.view}, {"goal", stat(config_.embedding, "goals")}})[1];
    const tensor::View goals = stat(config_.cells(), "goals");
    ops::Record map = tape::record_of(&ops::dense_forward::kDef, ops::DenseParams{}, "goals",
                                      {targets, builder.store().parameter(target_map_)});
    map.slots[ops::dense_forward::y] = goals;
    builder.append(std::move(map));
    cube_.set_recompute(static_cast<Recompute>(
        std::min(static_cast<int>(config_.recompute) + builder.memory_level(), static_cast<int>(Recompute::step))));
    energies_ = mapper_.forward(builder, x);
    const tape::Value surface = cube_.forward(builder, energies_);
    nn::mse(builder, surface, goals);
    if (builder.training()) {
        if (config_.text_bridge.enabled) bridge_.learn(builder, source, part, energies_.view, surface.view);
        builder.backward();
        builder.keep(cube_.counters());
        return {surface, {cube_.counters()}};
    }
    Outputs outputs{surface, keep_surface(builder, surface.view, targets, goals)};
    if (!config_.text_bridge.enabled) return outputs;
    const TextBridge::Figures figures = bridge_.measure(builder, source, part, surface.view);
    for (const tensor::View& view : {figures.encoded, figures.tally, figures.targets, figures.lengths, figures.answers.ids,
                                     figures.answers.lengths})  // as TextScoring::Tensor has them
        outputs.kept.push_back(view);
    return outputs;
}

void EnergyFlow::append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const {
    if (config_.text_bridge.enabled) bridge_.append_loss_total(builder, source, rows);
}

Outputs EnergyFlow::build_answer(tape::Builder& builder, const nn::Sequences& inputs) {
    MILLRACE_ASSERT(config_.text_bridge.enabled && !builder.training(),
                    "an answer needs the text bridge and an evaluation program");
    energies_ = bridge_.encode(builder, inputs);
    const tape::Value surface = cube_.forward(builder, energies_);
    const tensor::View vectors = read_back(builder, surface.view, "vectors read back");
    builder.keep(vectors);
    builder.keep(surface.view);
    const nn::Sequences answers = bridge_.decode(builder, surface.view);
    return {surface, {answers.ids, answers.lengths, vectors}};
}

tensor::View EnergyFlow::read_back(tape::Builder& builder, const tensor::View& surface, const char* name) const {
    const tensor::View vectors = builder.buffer(1, surface.rows, config_.embedding, builder.stat(), tape::Role::activation, name);
    builder.append(tape::record_of(&ops::linear_dgrad::kDef, ops::LinearGradParams{}, name,
                                   {surface, builder.store().parameter(target_map_), vectors}));
    return vectors;
}

std::vector<Attachment> EnergyFlow::attachments() const {
    if (!config_.text_bridge.enabled) return {};
    return {{TextBridge::kTokenizer, texts_.tokenizer->bytes()}};
}

std::vector<Component> EnergyFlow::components() const {
    if (!config_.text_bridge.enabled) return {{"energy", ""}};
    return {{"text_bridge", TextBridge::kLayers}, {"energy", ""}};
}

std::vector<tensor::View> EnergyFlow::keep_surface(tape::Builder& builder, const tensor::View& surface,
                                                   const tensor::View& targets, const tensor::View& goals) const {
    const tensor::View energies =
        builder.buffer(1, goals.rows, config_.cells(), builder.stat(), tape::Role::activation, "mapper's surface");
    builder.append(tape::record_of(&ops::copy::kDef, ops::CopyParams{}, "mapper's surface", {energies_, energies}));
    const tensor::View found = read_back(builder, surface, "vectors read back"),
                       mapper_found = read_back(builder, energies, "mapper's vectors read back");
    // As SurfaceScoring::Tensor has them.
    const std::vector<tensor::View> kept{found, mapper_found, targets, surface, energies, goals, cube_.counters()};
    for (const tensor::View& view : kept) builder.keep(view);
    return kept;
}

Outputs EnergyFlow::build_trace(tape::Builder& builder, data::BatchSource& source, data::Part part) {
    cube_.do_every_step(true);
    Outputs outputs = build(builder, source, part, 1);
    cube_.do_every_step(false);
    outputs.kept.resize(SurfaceScoring::tensors);  // a picture has no text
    for (const auto* views : {&cube_.tables(), &cube_.moves()})
        for (const tensor::View& view : *views) {
            builder.keep(view);
            outputs.kept.push_back(view);
        }
    return outputs;
}

FlowTrace EnergyFlow::trace_of(const std::vector<std::vector<double>>& kept) const {
    FlowTrace trace;
    trace.width = config_.width;
    trace.height = config_.height;
    trace.depth = config_.depth;
    trace.steps = config_.step_count();
    trace.steps_used = static_cast<std::int32_t>(kept[SurfaceScoring::counters][ops::flow_counter::steps]);
    trace.input = kept[SurfaceScoring::energies];
    trace.output = kept[SurfaceScoring::surface];
    trace.target = kept[SurfaceScoring::goals];
    double squares = 0, goal = 0;
    for (std::size_t i = 0; i < trace.target.size(); ++i) {
        squares += (trace.output[i] - trace.target[i]) * (trace.output[i] - trace.target[i]);
        goal += trace.target[i] * trace.target[i];
    }
    trace.loss = squares / config_.cells();
    const auto floats = [&](SurfaceScoring::Tensor which) { return std::vector<float>(kept[which].begin(), kept[which].end()); };
    const std::vector<float> answer = floats(SurfaceScoring::targets);
    trace.output_cosine = mean_cosine(floats(SurfaceScoring::found), answer, answer.size());
    trace.input_cosine = mean_cosine(floats(SurfaceScoring::mapper_found), answer, answer.size());
    trace.target_cosine = std::sqrt(goal) / map_scale(config_);  // the map is an isometry of its image, the answer has length 1
    const auto tables = kept.begin() + SurfaceScoring::tensors, moves = tables + trace.steps + 1;
    // After an early stop nothing moves any more.
    trace.paths = flow_paths(config_, {tables, tables + trace.steps_used + 1}, {moves, moves + trace.steps_used});
    scatter_by_plane(config_, trace.paths, trace.above, trace.below);
    return trace;
}

std::unique_ptr<Scoring> EnergyFlow::scoring(data::Part, int) const {
    if (config_.text_bridge.enabled) return std::make_unique<TextScoring>(config_, texts_.tokenizer);
    return std::make_unique<SurfaceScoring>(config_);
}

std::string EnergyFlow::description() const {
    std::string text = fmt::format("cube of {} x {} x {}, {} steps, state {} x {}; {} mapper of {} parameters", config_.width,
                                   config_.height, config_.depth, config_.step_count(), config_.layers, config_.hidden,
                                   config_.mapper == MapperKind::deep ? "deep" : "compact", mapper_.parameters());
    if (config_.text_bridge.enabled)
        text += fmt::format("; text bridge of {} tokens, sentences of up to {} and {}", texts_.tokenizer->vocabulary(),
                            texts_.input_tokens, texts_.target_tokens);
    return text;
}

}  // namespace millrace::models
