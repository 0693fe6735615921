#include "models/baselines/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/keys.h"
#include "nn/pointwise.h"
#include "ops/activation.h"

namespace millrace::models {
namespace {

constexpr double kTolerance = 0.05;
constexpr std::int32_t kNarrowest = 20;  ///< balanced: narrower layers are left out

/// Widths of the hidden layers over the first one.
std::vector<double> ratios_of(BaselineKind kind) {
    switch (kind) {
        case BaselineKind::shallow: return {1, 0.9};
        case BaselineKind::balanced: return {1, 0.5, 0.25, 0.125};
        case BaselineKind::deep:
        case BaselineKind::deep_resnet: return std::vector<double>(8, 1.0);
        case BaselineKind::very_deep:
        case BaselineKind::very_deep_resnet: return std::vector<double>(12, 1.0);
    }
    return {};
}

/// Positive root of the number of parameters minus `target`, a quadratic in the width of the first layer. Where neighbours differ
/// in width a residual layer also has a projection; the quadratic counts it.
double solve(const std::vector<double>& ratios, bool residual, double target, double features, double classes) {
    const double first = residual ? 2 * features + 4 : features + 3;  // weights, bias, gain and shift; the projection
    double a = 0, b = first * ratios[0] + classes * ratios.back();
    for (std::size_t i = 1; i < ratios.size(); ++i) {
        const bool projected = residual && ratios[i] != ratios[i - 1];
        a += (projected ? 2 : 1) * ratios[i] * ratios[i - 1];
        b += (projected ? 4 : 3) * ratios[i];
    }
    const double c = classes - target;
    if (a == 0) return -c / b;
    return (std::sqrt(std::max(b * b - 4 * a * c, 0.0)) - b) / (2 * a);
}

nn::DenseOptions linear_options(std::int32_t in, std::int32_t out) {
    // The variance that PyTorch's linear layers begin with. 2 / out, as the reference has it, lets a single number begin with
    // errors a hundred times its deviation.
    return {.in = in, .out = out, .weight_init = tape::Init::normal(std::sqrt(1.0 / (3.0 * in)))};
}

// Parameters of the collective (r1) that a preset is matched to.
constexpr std::int64_t kDebugTarget = 559738, kPhase1Target = 2884042;

void baseline_keys(Keys& keys, BaselineConfig& c) {
    keys.add("target_parameters", c.target_parameters, "number of parameters that the width is solved for").between(1, 1e12);
    keys.add("widths", c.widths, "widths of the hidden layers; empty: solved for target_parameters")
        .between(1, 1 << 20)
        .length(0, 256);
    keys.add("dropout", c.dropout, "after every hidden layer").at_least(0).below(1);
}

base::Schema baseline_schema(const std::string& preset) {
    return schema_of(baseline_keys, {.widths = {}, .target_parameters = preset == "debug" ? kDebugTarget : kPhase1Target});
}

base::Result<std::unique_ptr<Model>> make_baseline(const base::Recipe& recipe, const data::Fields& fields) {
    const BaselineKind kind = *std::ranges::find(kBaselines, recipe.text("model.name"), name_of);
    BaselineConfig config = read_keys(baseline_keys, recipe);
    config.residual = is_residual(kind);
    MILLRACE_SET(config.task, task_of(recipe, fields));
    if (config.widths.empty()) {
        auto solved = solve_widths(kind, config.target_parameters, config.task.input.width, config.task.outputs);
        if (!solved.ok()) return recipe.bad("model.target_parameters", solved.error().message);
        config.widths = std::move(solved).value();
    }
    return std::unique_ptr<Model>(std::make_unique<Baseline>(std::move(config)));
}

}  // namespace

const char* name_of(BaselineKind kind) {
    constexpr const char* kNames[] = {"shallow", "balanced", "deep", "very_deep", "deep_resnet", "very_deep_resnet"};
    return kNames[static_cast<int>(kind)];
}

std::int64_t baseline_parameters(const std::vector<std::int32_t>& widths, bool residual, std::int32_t features,
                                 std::int32_t classes) {
    std::int64_t sum = 0, in = features;
    for (std::int64_t width : widths) {
        sum += in * width + 3 * width;
        if (residual && in != width) sum += in * width + width;
        in = width;
    }
    return sum + in * classes + classes;
}

base::Result<std::vector<std::int32_t>> solve_widths(BaselineKind kind, std::int64_t target, std::int32_t features,
                                                     std::int32_t classes) {
    std::vector<double> ratios = ratios_of(kind);
    const bool residual = is_residual(kind);
    auto solved = [&] { return solve(ratios, residual, static_cast<double>(target), features, classes); };
    double width = solved();
    while (kind == BaselineKind::balanced && ratios.size() > 1 && width * ratios.back() <= kNarrowest) {
        ratios.pop_back();
        width = solved();
    }
    std::vector<std::int32_t> widths;
    widths.reserve(ratios.size());
    for (double ratio : ratios) widths.push_back(static_cast<std::int32_t>(std::lround(width * ratio)));
    const std::int64_t found = widths.back() < 1 ? 0 : baseline_parameters(widths, residual, features, classes);
    if (std::abs(static_cast<double>(found - target)) > kTolerance * static_cast<double>(target))
        return base::Error{fmt::format(
            "no {} baseline for {} features and {} classes comes within 5 % of {} parameters (the nearest has {}); a larger "
            "model.target_parameters would do",
            name_of(kind), features, classes, target, found)};
    return widths;
}

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

Outputs Baseline::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    tape::Value value = builder.activation(rows, config_.task.input.width, "x", false);
    const tensor::View answers = config_.task.gather(builder, source, part, rows, value.view);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const tape::Value straight = layers_[i].linear.forward(builder, value);
        if (config_.residual) {
            const tape::Value around = layers_[i].skip ? layers_[i].skip->forward(builder, value) : value;
            const tape::Value sum = nn::add(builder, straight, around, fmt::format("layers.{}.sum", i));
            value = nn::pointwise(builder, sum, {ops::Activation::relu, config_.dropout}, fmt::format("layers.{}.relu", i));
        } else {
            value = straight;
        }
    }
    return config_.task.judge(builder, out_.forward(builder, value), answers);
}

std::vector<Family> baseline_families() {
    std::vector<Family> families;
    for (const BaselineKind kind : kBaselines)
        families.push_back(task_family(name_of(kind), {"debug", "phase1"}, baseline_schema, make_baseline));
    return families;
}

}  // namespace millrace::models
