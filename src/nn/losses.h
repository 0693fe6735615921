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

struct MseOptions {
    double weight = 1;    ///< of this term in the step's objective
    bool as_loss = true;  ///< counts as the step's loss and rows; else its share of the objective joins state.penalty
    std::string name = "mse";
};
/// Mean squared error of prediction [K,1,B,C] against target real [K,1,B,C], which no gradient reaches.
void mse(tape::Builder& builder, const tape::Value& prediction, const tensor::View& target, const MseOptions& options = {});

}  // namespace millrace::nn
