#include "nn/losses.h"

#include "nn/slot_target.h"
#include "ops/loss/loss.h"

namespace millrace::nn {
namespace {

constexpr const char* kWeighted = "weighted_cross_entropy";

}  // namespace

void cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels) {
    builder.append(record_of(&ops::cross_entropy::kDef, ops::LossParams{builder.share()}, "cross_entropy",
                             {logits, labels, builder.store().state(), only_loss_of(builder, logits)}));
}

tape::ParameterId declare_member_value(tape::Store& store, const std::string& name, const std::vector<double>& values) {
    std::vector<std::vector<double>> each;
    each.reserve(values.size());
    for (const double value : values) each.push_back({value});
    return store.add_vector({name}, 1, tape::Init::blocks(std::move(each)), tape::kSettings);
}

ClassWeights declare_class_weights(tape::Store& store, const std::string& name, std::vector<std::vector<double>> weights,
                                   const std::vector<double>& gammas, bool by_rows) {
    const auto classes = static_cast<std::int32_t>(weights.front().size());
    return {store.add_vector({name + ".weights"}, classes, tape::Init::blocks(std::move(weights)), tape::kSettings),
            declare_member_value(store, name + ".gamma", gammas), by_rows};
}

void weighted_cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels,
                            const ClassWeights& weights) {
    const tape::Store& store = builder.store();
    const Mean mean = weights.by_rows ? Mean{builder.share(), {}} : step_mean(builder, kWeighted, "a mean over weights");
    builder.append(record_of(&ops::weighted_cross_entropy::kDef, ops::WeightedLossParams{mean.scale, weights.by_rows}, kWeighted,
                             {logits, labels, store.parameter(weights.weights), store.parameter(weights.gamma), store.state(),
                              only_loss_of(builder, logits), mean.total}));
}

void total_class_weights(tape::Builder& builder, const tensor::View& labels, const ClassWeights& weights) {
    if (!weights.by_rows) append_loss_total(builder, kWeighted, {}, labels, builder.store().parameter(weights.weights));
}

void binary_cross_entropy(tape::Builder& builder, const tape::Value& logit, const tensor::View& labels, std::int32_t positive,
                          tape::ParameterId weight) {
    const tape::Store& store = builder.store();
    builder.append(record_of(&ops::binary_cross_entropy::kDef, ops::BinaryLossParams{builder.share(), positive},
                             "binary_cross_entropy",
                             {logit, labels, store.parameter(weight), store.state(), only_loss_of(builder, logit)}));
}

namespace {

void append_mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& wanted, const ops::LossParams& params,
                const std::string& name) {
    builder.append(record_of(&ops::mse::kDef, params, name,
                             {prediction, wanted, builder.store().state(), only_loss_of(builder, prediction)}));
}

}  // namespace

void mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& wanted) {
    append_mse(builder, prediction, wanted, {builder.share(), true}, "mse");
}

void mse_penalty(tape::Builder& builder, const tape::Value& prediction, const tensor::View& wanted, double weight,
                 const std::string& name) {
    append_mse(builder, prediction, wanted, {weight * builder.share(), false}, name);
}

void cosine_diversity(tape::Builder& builder, const tape::Value& outputs, std::int32_t groups, double weight,
                      double temperature) {
    if (!builder.training()) return;
    builder.couple_rows("diversity of cosines over the batch");
    const tape::Value grouped = outputs.split_columns(groups);
    builder.append(record_of(&ops::cosine_diversity::kDef, ops::DiversityParams{weight, temperature, builder.share()},
                             "cosine_diversity", {grouped, builder.store().state(), builder.gradient_target(grouped)}));
}

}  // namespace millrace::nn
