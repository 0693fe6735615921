#pragma once
// Losses and penalties of a batch. Conventions: ops/op.h. Every gradient that begins here is
// multiplied by state.loss_scale, losses and penalties are not.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// cross_entropy. Per row: loss = log(sum exp(l - max)) - (l[label] - max), in stat. state.loss += sum over rows (ascending),
/// state.rows += B, state.correct += rows whose largest logit (lowest index on ties) is the label. dlogits (optional, real)
/// = (softmax - onehot) * scale / B, where `scale` is the micro-batch's share of the step's rows (1 without accumulation).
/// A non-finite loss sets state.nonfinite. logits real [K,1,B,C], labels i32 [K,1,B,1]; a label outside [0, C) sets nonfinite, loss 0, gradient 0.
/// weights (optional) stat [K,1,1,C]: a row's loss and gradient are multiplied by weights[label]. The mean stays that over rows.
/// predicted (optional) i32 [K,1,B,1]: the index of a row's largest logit, the lowest on ties.
struct LossParams { double scale = 1; bool as_loss = true; };
namespace cross_entropy { enum Slot { logits, labels, state, dlogits, weights, predicted, slots }; extern const OpDef kDef; }

/// loss_total. What a mean over all rows of a step divides by when the step runs in parts, before the first of them. total[0] = sum over rows of weights[v] where v is
/// in [0, C), 0 elsewhere; without weights of v cut to [0, most], which counts tokens. total[1] = B. Slots: values i32 [K,1,B,1] (labels, lengths), weights stat
/// [K,1,1,C], optional, total stat [K,1,1,2].
struct LossTotalParams { std::int32_t most = 0; };
namespace loss_total { enum Slot { values, weights, total, slots }; extern const OpDef kDef; }

/// mse. Mean over rows and cols of (p - t)^2: state.loss += sum over rows of the row's mean over cols, state.rows += B;
/// dprediction (optional) = 2 (p - t) * scale / (B C). The three are of one type, real or stat. as_loss false: state.penalty += scale * mean instead of
/// loss and rows. (cross_entropy is always a loss.)
namespace mse { enum Slot { prediction, target, state, dprediction, slots }; extern const OpDef kDef; }

// clang-format on

/// The rule of logits real [K,1,B,C], labels i32 [K,1,B,1], state and gradients as logits, optional. C > 0.
Checker& check_classes(Checker& c, int logits, int labels, int state, int gradients);

/// What a loss divides by, and the rows that its mean stands for.
struct LossTotal {
    double divisor, rows;
};
/// Those of the step where `total` is present, else the batch's own.
template <class Stat>
LossTotal total_of(const tensor::Operand& total, int member, double divisor, int rows) {
    if (!total.present()) return {divisor, static_cast<double>(rows)};
    return {static_cast<double>(total.at<Stat>(member)[0]), static_cast<double>(total.at<Stat>(member)[1])};
}

}  // namespace millrace::ops
