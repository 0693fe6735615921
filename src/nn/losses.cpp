#include "nn/losses.h"

#include "nn/slot_target.h"
#include "ops/loss/loss.h"

namespace millrace::nn {

tensor::View cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels,
                           const tensor::View& weights) {
    tensor::View predicted;
    if (!builder.training())
        predicted = builder.buffer(1, logits.view.rows, 1, tensor::DType::i32, tape::Role::activation, "predicted");
    builder.append(record_of(&ops::cross_entropy::kDef, ops::LossParams{builder.share()}, "cross_entropy",
                             {logits, labels, builder.store().state(), only_loss_of(builder, logits), weights, predicted}));
    return predicted;
}

void mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& wanted, const MseOptions& options) {
    builder.append(record_of(&ops::mse::kDef, ops::LossParams{options.weight * builder.share(), options.as_loss}, options.name,
                             {prediction, wanted, builder.store().state(), only_loss_of(builder, prediction)}));
}

}  // namespace millrace::nn
