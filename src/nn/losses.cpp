#include "nn/losses.h"

#include "nn/slot_target.h"
#include "ops/loss/loss.h"

namespace millrace::nn {

void cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels) {
    namespace slot = ops::cross_entropy;
    ops::Record record{&ops::cross_entropy::def, ops::LossParams{builder.share()}, {}, 0, "cross_entropy"};
    record.slots[slot::logits] = logits.view;
    record.slots[slot::labels] = labels;
    record.slots[slot::state] = builder.store().state();
    if (builder.training()) {
        const tape::Builder::Target target = builder.gradient_target(logits);
        MILLRACE_ASSERT(!target.accumulate, "the logits have a second loss");
        record.slots[slot::dlogits] = target.view;
    }
    builder.append(std::move(record));
}

namespace {

void append_mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& wanted, const ops::LossParams& params,
                const std::string& name) {
    namespace slot = ops::mse;
    ops::Record record{&ops::mse::def, params, {}, 0, name};
    record.slots[slot::prediction] = prediction.view;
    record.slots[slot::target] = wanted;
    record.slots[slot::state] = builder.store().state();
    if (builder.training()) {
        const tape::Builder::Target target = builder.gradient_target(prediction);
        MILLRACE_ASSERT(!target.accumulate, "the prediction has a second loss");
        record.slots[slot::dprediction] = target.view;
    }
    builder.append(std::move(record));
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
    namespace slot = ops::cosine_diversity;
    if (!builder.training()) return;
    const tape::Value grouped = outputs.split_columns(groups);
    ops::Record record{
        &ops::cosine_diversity::def, ops::DiversityParams{weight, temperature, builder.share()}, {}, 0, "cosine_diversity"};
    record.slots[slot::o] = grouped.view;
    record.slots[slot::state] = builder.store().state();
    write_to(record, slot::dout, builder.gradient_target(grouped));
    builder.append(std::move(record));
}

}  // namespace millrace::nn
