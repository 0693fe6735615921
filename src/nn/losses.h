#pragma once
// Losses: they add to the member's state (loss, rows, correct, penalty) and, in training, start the gradient of their input,
// weighted by the micro-batch's share of the step (Builder::share()). One that divides by something in the data takes the sum
// over the whole step where it is known (Builder::loss_total()), so that its parts add up to the step's.

#include <string>

#include "tape/builder.h"

namespace millrace::nn {

/// Mean cross-entropy of logits [K,1,B,C] against labels i32 [K,1,B,1], each row times the weight of its label, stat [K,1,1,C],
/// where there are weights. The only consumer of the logits' gradient. In evaluation gives the predicted classes, i32 [K,1,B,1].
tensor::View cross_entropy(tape::Builder& builder, const tape::Value& logits, const tensor::View& labels,
                           const tensor::View& weights = {});

/// Mean squared error of prediction [K,1,B,C] against target real [K,1,B,C].
void mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& target);
/// The same, times `weight`, as a term beside the loss: its share of the objective joins state.penalty. No gradient reaches the
/// target.
void mse_penalty(tape::Builder& builder, const tape::Value& prediction, const tensor::View& target, double weight,
                 const std::string& name);

}  // namespace millrace::nn
