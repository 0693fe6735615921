#include "models/collective/collective.h"

#include <fmt/format.h>

#include "models/collective/ops/diversity.h"
#include "nn/losses.h"
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

}  // namespace

base::Status Collective::declare(tape::Store& store) {
    MILLRACE_TRY(validate(config_));
    const CollectiveConfig& c = config_;
    experts_ = declare_units(store, "experts", c.experts, c.features, c.expert, c.vary_experts, c.unit_dropout);
    encoder_ = declare_encoder(store, "encoder", c.opinions_width(), c.summary_width(), c.encoder_dropout);
    analysts_ =
        declare_units(store, "analysts", c.analysts, c.features + c.summary_width(), c.analyst, c.vary_analysts, c.unit_dropout);
    analyst_encoder_.clear();
    if (c.revision == Revision::r2)
        analyst_encoder_ = declare_encoder(store, "analyst_encoder", c.votes_width(), c.code_width(), c.encoder_dropout);
    const nn::DenseOptions hidden{
        .in = c.head_input(), .out = c.head_hidden(), .activation = ops::Activation::relu, .dropout = c.head_dropout};
    const nn::DenseOptions out{.in = hidden.out, .out = c.classes};
    head_.clear();
    head_.emplace_back(store, std::vector<std::string>{"head.0"}, std::vector<std::string>{}, hidden);
    head_.emplace_back(store, std::vector<std::string>{"head.3"}, std::vector<std::string>{}, out);
    return base::ok();
}

/// Everything up to the analysts' outputs: [K,1,B,analysts*output]. `seen` [K,1,B,features+summary] holds the samples; the
/// summary of the experts is written behind them, so that the analysts' input is never copied together.
tape::Value Collective::votes(tape::Builder& builder, const tape::Value& seen, std::int32_t rows) const {
    const CollectiveConfig& c = config_;
    const tape::Value x{seen.view.columns(0, c.features), false};
    const tape::Value opinions = builder.activation(rows, c.opinions_width(), "opinions", true);
    for (const UnitFamily& family : experts_) family.forward(builder, x, {}, opinions);
    if (c.diversity_experts) cosine_diversity(builder, opinions, c.experts, c.diversity_weight, c.diversity_temperature);

    const nn::Columns summary{c.features, c.summary_width()};
    const tape::Value middle = encoder_[0].forward(builder, opinions);
    encoder_[1].forward(builder, middle, {seen.columns(summary.begin, summary.width), {}});

    const tape::Value votes = builder.activation(rows, c.votes_width(), "votes", true);
    for (const UnitFamily& family : analysts_) family.forward(builder, seen, summary, votes);
    if (c.diversity_analysts) cosine_diversity(builder, votes, c.analysts, c.diversity_weight, c.diversity_temperature);
    return votes;
}

data::Fields Collective::wants() const {
    return {{"image", data::Field::Kind::real, config_.features}, {"label", data::Field::Kind::integer, 1}};
}

Outputs Collective::build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) {
    const tape::Value seen = builder.activation(rows, config_.features + config_.summary_width(), "seen", true);
    const tensor::View labels =
        source.gather(builder, part, rows, {{"image", seen.view.columns(0, config_.features)}, {"label"}})[1];
    tape::Value value = votes(builder, seen, rows);
    for (const nn::Dense& layer : analyst_encoder_) value = layer.forward(builder, value);
    for (const nn::Dense& layer : head_) value = layer.forward(builder, value);
    nn::cross_entropy(builder, value, labels);
    if (builder.training()) builder.backward();
    return {value, {}, labels};
}

}  // namespace millrace::models
