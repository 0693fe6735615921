#include "models/leak_cnn/losses.h"

#include "models/leak_cnn/ops/weighted.h"
#include "nn/slot_target.h"

namespace millrace::models {
namespace {

constexpr const char* kWeighted = "weighted_cross_entropy";

}  // namespace

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
    const nn::Mean mean =
        weights.by_rows ? nn::Mean{builder.share(), {}} : nn::step_mean(builder, kWeighted, "a mean over weights");
    builder.append(tape::record_of(&ops::weighted_cross_entropy::kDef, ops::WeightedLossParams{mean.scale, weights.by_rows},
                                   kWeighted,
                                   {logits, labels, store.parameter(weights.weights), store.parameter(weights.gamma),
                                    store.state(), nn::only_loss_of(builder, logits), mean.total}));
}

void total_class_weights(tape::Builder& builder, const tensor::View& labels, const ClassWeights& weights) {
    if (!weights.by_rows) nn::append_loss_total(builder, kWeighted, {}, labels, builder.store().parameter(weights.weights));
}

void binary_cross_entropy(tape::Builder& builder, const tape::Value& logit, const tensor::View& labels, std::int32_t positive,
                          tape::ParameterId weight) {
    const tape::Store& store = builder.store();
    builder.append(tape::record_of(&ops::binary_cross_entropy::kDef, ops::BinaryLossParams{builder.share(), positive},
                                   "binary_cross_entropy",
                                   {logit, labels, store.parameter(weight), store.state(), nn::only_loss_of(builder, logit)}));
}

}  // namespace millrace::models
