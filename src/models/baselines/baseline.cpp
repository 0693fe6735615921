#include "models/baselines/baseline.h"

#include <fmt/format.h>

#include <cmath>

#include "models/baselines/widths.h"
#include "models/families.h"
#include "nn/pointwise.h"
#include "ops/activation.h"

namespace millrace::models {
namespace {

nn::DenseOptions linear_options(std::int32_t in, std::int32_t out) {
    // The variance that PyTorch's linear layers begin with. 2 / out, as the reference has it, lets a single number begin with
    // errors a hundred times its deviation.
    return {.in = in, .out = out, .weight_init = tape::Init::normal(std::sqrt(1.0 / (3.0 * in)))};
}

// Parameters of the collective (r1) that a preset is matched to.
constexpr std::int64_t kDebugTarget = 559738, kPhase1Target = 2884042;

base::Schema baseline_schema(const std::string& preset) {
    base::Schema keys;
    keys.integer("target_parameters", preset == "debug" ? kDebugTarget : kPhase1Target,
                 "number of parameters that the width is solved for")
        .between(1, 1e12);
    keys.integers("widths", {}, "widths of the hidden layers; empty: solved for target_parameters")
        .between(1, 1 << 20)
        .length(0, 256);
    keys.real("dropout", 0.1, "after every hidden layer").at_least(0).below(1);
    return keys;
}

template <BaselineKind kKind>
base::Result<std::unique_ptr<Model>> make_baseline(const base::Recipe& recipe, const data::Fields& fields) {
    BaselineConfig config;
    config.residual = is_residual(kKind);
    MILLRACE_SET(config.task, task_of(recipe, fields));
    config.dropout = static_cast<float>(recipe.real("model.dropout"));
    for (std::int64_t width : recipe.integers("model.widths")) config.widths.push_back(static_cast<std::int32_t>(width));
    if (config.widths.empty()) {
        auto solved =
            solve_widths(kKind, recipe.integer("model.target_parameters"), config.task.input.width, config.task.outputs);
        if (!solved.ok()) return recipe.bad("model.target_parameters", solved.error().message);
        config.widths = std::move(solved).value();
    }
    return std::unique_ptr<Model>(std::make_unique<Baseline>(std::move(config)));
}

template <BaselineKind kKind>
Family family() {
    Family family{name_of(kKind), {"debug", "phase1"}, baseline_schema, make_baseline<kKind>};
    family.metrics = regression_metrics();
    family.weighs_classes = true;
    return family;
}

}  // namespace

base::Status Baseline::declare(tape::Store& store) {
    if (config_.widths.empty()) return base::Error{"model.widths is empty; at least one hidden layer would be right"};
    for (std::int32_t width : config_.widths)
        if (width < 1) return base::Error{fmt::format("model.widths holds {}; at least 1 would be right", width)};
    config_.task.declare(store);
    layers_.clear();
    std::int32_t in = config_.task.input.width;
    for (std::size_t i = 0; i < config_.widths.size(); ++i) {
        const std::int32_t width = config_.widths[i];
        nn::DenseOptions options = linear_options(in, width);
        options.batch_norm = true;
        if (!config_.residual) {
            options.activation = ops::Activation::relu;
            options.dropout = config_.dropout;
        }
        Layer layer;
        const std::string name = fmt::format("layers.{}", i);
        layer.linear = nn::Dense(store, {name + ".linear"}, {name + ".norm"}, options);
        if (config_.residual && in != width) layer.skip = nn::Dense(store, {name + ".skip"}, {}, linear_options(in, width));
        layers_.push_back(std::move(layer));
        in = width;
    }
    out_ = nn::Dense(store, {"out"}, {}, linear_options(in, config_.task.outputs));
    return base::ok();
}

tape::Value Baseline::residual_layer(tape::Builder& builder, const Layer& layer, const tape::Value& x, std::size_t index) const {
    const std::string name = fmt::format("layers.{}", index);
    const tape::Value straight = layer.linear.forward(builder, x);
    const tape::Value around = layer.skip ? layer.skip->forward(builder, x) : x;
    const tape::Value sum = nn::add(builder, straight, around, name + ".sum");
    return nn::pointwise(builder, sum, {ops::Activation::relu, config_.dropout}, name + ".relu");
}

Outputs Baseline::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    tape::Value value = builder.activation(rows, config_.task.input.width, "x", false);
    const tensor::View answers = config_.task.gather(builder, source, part, rows, value.view);
    for (std::size_t i = 0; i < layers_.size(); ++i)
        value = config_.residual ? residual_layer(builder, layers_[i], value, i) : layers_[i].linear.forward(builder, value);
    return config_.task.judge(builder, out_.forward(builder, value), answers);
}

std::vector<Family> baseline_families() {
    return {family<BaselineKind::shallow>(),   family<BaselineKind::balanced>(),    family<BaselineKind::deep>(),
            family<BaselineKind::very_deep>(), family<BaselineKind::deep_resnet>(), family<BaselineKind::very_deep_resnet>()};
}

}  // namespace millrace::models
