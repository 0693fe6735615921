#include "models/collective/collective.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/collective/ops/diversity.h"
#include "ops/activation.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

/// Linear, BatchNorm, ReLU, dropout, Linear.
std::vector<nn::Dense> declare_encoder(tape::Store& store, const std::string& name, std::int32_t in, std::int32_t out,
                                       float dropout) {
    const nn::DenseOptions first{
        .in = in, .out = encoder_hidden(in, out), .batch_norm = true, .activation = ops::Activation::relu, .dropout = dropout};
    const nn::DenseOptions second{.in = first.out, .out = out};
    std::vector<nn::Dense> layers;
    layers.emplace_back(store, std::vector{name + ".0"}, std::vector{name + ".1"}, first);
    layers.emplace_back(store, std::vector{name + ".4"}, std::vector<std::string>{}, second);
    return layers;
}

/// weight * mean over pairs of the `groups` groups in outputs [K,1,B,groups*C] of |batch mean of their cosine / temperature|.
/// Training only: evaluation scores the prediction alone.
void cosine_diversity(tape::Builder& builder, const tape::Value& outputs, std::int32_t groups, double weight,
                      double temperature) {
    if (!builder.training()) return;
    builder.couple_rows("diversity of cosines over the batch");
    const tape::Value grouped = outputs.split_columns(groups);
    builder.append(tape::record_of(&ops::cosine_diversity::kDef, ops::DiversityParams{weight, temperature, builder.share()},
                                   "cosine_diversity", {grouped, builder.store().state(), builder.gradient_target(grouped)}));
}

/// The families of a role: one, or up to four when architectures vary.
std::vector<UnitFamily> declare_units(tape::Store& store, const std::string& role, std::int32_t count, std::int32_t inputs,
                                      const UnitShape& shape, bool vary, float dropout) {
    std::vector<UnitFamily> families;
    const std::int32_t kinds = vary ? std::min(count, 4) : 1;
    for (std::int32_t kind = 0; kind < kinds; ++kind) {
        const std::int32_t units = (count - kind + kinds - 1) / kinds;
        families.emplace_back(store, role, kind, kinds, units, inputs, vary ? varied(shape, kind) : shape, dropout);
    }
    return families;
}

}  // namespace

UnitFamily::UnitFamily(tape::Store& store, const std::string& role, std::int32_t first, std::int32_t stride, std::int32_t count,
                       std::int32_t inputs, const UnitShape& shape, float dropout)
    : first_(first), stride_(stride), count_(count), output_(shape.output) {
    // Positions in a unit count its activations and dropouts too: Linear 4 i, BatchNorm 4 i + 1, the last Linear right behind a
    // ReLU.
    auto names = [&](std::size_t position) {
        std::vector<std::string> all;
        all.reserve(static_cast<std::size_t>(count));
        for (std::int32_t i = 0; i < count; ++i) all.push_back(fmt::format("{}.{}.{}", role, first + i * stride, position));
        return all;
    };
    const std::size_t hidden = shape.hidden.size();
    nn::DenseOptions options{.in = inputs, .batch_norm = true, .activation = ops::Activation::relu, .shared_input = true};
    for (std::size_t i = 0; i < hidden; ++i) {
        options.out = shape.hidden[i];
        options.dropout = i + 1 < hidden ? dropout : 0;
        layers_.emplace_back(store, names(4 * i), names(4 * i + 1), options);
        options.in = options.out;
        options.shared_input = false;
    }
    const nn::DenseOptions last{.in = options.in, .out = shape.output};
    layers_.emplace_back(store, names(4 * hidden - 1), std::vector<std::string>{}, last);
}

void UnitFamily::forward(tape::Builder& builder, const tape::Value& x, std::optional<nn::Columns> gradient_columns,
                         const tape::Value& joined) const {
    tape::Value value = x;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        nn::DensePlacement placement;
        if (i == 0) placement.gradient_columns = gradient_columns;
        if (i + 1 == layers_.size()) {
            tape::Value columns = joined.columns(first_ * output_, output_);
            columns.view.g = count_;
            columns.view.stride_g = std::int64_t{stride_} * output_;
            placement.into = columns;
        }
        value = layers_[i].forward(builder, value, placement);
    }
}

base::Status Collective::declare(tape::Store& store) {
    MILLRACE_TRY(validate(config_));
    config_.task.declare(store);
    const CollectiveConfig& c = config_;
    experts_ = declare_units(store, "experts", c.experts, c.features(), c.expert, c.vary_experts, c.unit_dropout);
    encoder_ = declare_encoder(store, "encoder", c.opinions_width(), c.summary_width(), c.encoder_dropout);
    analysts_ = declare_units(store, "analysts", c.analysts, c.features() + c.summary_width(), c.analyst, c.vary_analysts,
                              c.unit_dropout);
    analyst_encoder_.clear();
    if (c.revision == Revision::r2)
        analyst_encoder_ = declare_encoder(store, "analyst_encoder", c.votes_width(), c.code_width(), c.encoder_dropout);
    const nn::DenseOptions hidden{
        .in = c.head_input(), .out = c.head_hidden(), .activation = ops::Activation::relu, .dropout = c.head_dropout};
    const nn::DenseOptions out{.in = hidden.out, .out = c.task.outputs};
    head_.clear();
    head_.emplace_back(store, std::vector<std::string>{"head.0"}, std::vector<std::string>{}, hidden);
    head_.emplace_back(store, std::vector<std::string>{"head.3"}, std::vector<std::string>{}, out);
    return base::ok();
}

/// Everything up to the analysts' outputs: [K,1,B,analysts*output]. `seen` [K,1,B,features+summary] holds the samples; the
/// summary of the experts is written behind them, so that the analysts' input is never copied together.
tape::Value Collective::votes(tape::Builder& builder, const tape::Value& seen, std::int32_t rows) const {
    const CollectiveConfig& c = config_;
    const tape::Value x{seen.view.columns(0, c.features()), false};
    const tape::Value opinions = builder.activation(rows, c.opinions_width(), "opinions", true);
    for (const UnitFamily& family : experts_) family.forward(builder, x, {}, opinions);
    if (c.diversity_experts) cosine_diversity(builder, opinions, c.experts, c.diversity_weight, c.diversity_temperature);

    const nn::Columns summary{c.features(), c.summary_width()};
    const tape::Value middle = encoder_[0].forward(builder, opinions);
    encoder_[1].forward(builder, middle, {seen.columns(summary.begin, summary.width), {}});

    const tape::Value votes = builder.activation(rows, c.votes_width(), "votes", true);
    for (const UnitFamily& family : analysts_) family.forward(builder, seen, summary, votes);
    if (c.diversity_analysts) cosine_diversity(builder, votes, c.analysts, c.diversity_weight, c.diversity_temperature);
    return votes;
}

Outputs Collective::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const tape::Value seen = builder.activation(rows, config_.features() + config_.summary_width(), "seen", true);
    const tensor::View answers = config_.task.gather(builder, source, part, rows, seen.view.columns(0, config_.features()));
    tape::Value value = votes(builder, seen, rows);
    for (const nn::Dense& layer : analyst_encoder_) value = layer.forward(builder, value);
    for (const nn::Dense& layer : head_) value = layer.forward(builder, value);
    return config_.task.judge(builder, value, answers);
}

}  // namespace millrace::models
