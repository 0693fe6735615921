#pragma once
// Losses and penalties of a batch. Conventions: ops/op.h. Every gradient that begins here is
// multiplied by state.loss_scale, losses and penalties are not.

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// cross_entropy. Per row: loss = log(sum exp(l - max)) - (l[label] - max), in stat. state.loss += sum over rows (ascending),
/// state.rows += B, state.correct += rows whose largest logit (lowest index on ties) is the label. dlogits (optional, real)
/// = (softmax - onehot) * scale / B, where `scale` is the micro-batch's share of the step's rows (1 without accumulation).
/// A non-finite loss sets state.nonfinite. logits real [K,1,B,C], labels i32 [K,1,B,1]; a label outside [0, C) sets nonfinite, loss 0, gradient 0.
struct LossParams { double scale = 1; bool as_loss = true; };
namespace cross_entropy { enum Slot { logits, labels, state, dlogits, slots }; extern const OpDef kDef; }

/// weighted_cross_entropy. Per row, with ce as above, p = exp(-ce), q = max(1 - p, 1e-8) and w = weights[label]: r = w q^gamma ce; weights stat [K,1,1,C]
/// and gamma stat [K,1,1,1] are data of the member. loss = sum of r / d with d = B when `by_rows`, else the sum of w over the valid rows (no loss, no
/// gradient when that is 0). state.loss += B loss; rows, correct, nonfinite, labels outside as above. dlogits (optional, real)
/// = (softmax - onehot) w (q^gamma + gamma q^(gamma - 1) p ce) * scale / d.
/// total (loss_total of the labels and weights, optional, without `by_rows`) takes the place of d and of B in state.loss.
struct WeightedLossParams { double scale = 1; bool by_rows = false; };
namespace weighted_cross_entropy { enum Slot { logits, labels, weights, gamma, state, dlogits, total, slots }; extern const OpDef kDef; }

/// loss_total. What a mean over all rows of a step divides by when the step runs in parts, before the first of them. total[0] = sum over rows of weights[v] where v is
/// in [0, C), 0 elsewhere; without weights of v cut to [0, most], which counts tokens. total[1] = B. Slots: values i32 [K,1,B,1] (labels, lengths), weights stat
/// [K,1,1,C], optional, total stat [K,1,1,2].
struct LossTotalParams { std::int32_t most = 0; };
namespace loss_total { enum Slot { values, weights, total, slots }; extern const OpDef kDef; }

/// binary_cross_entropy. A term beside the loss: with t = 1 where label == positive, else 0: mean over rows of log(1 + exp(l)) - t l, times weight,
/// stat [K,1,1,1] of the member. state.penalty += scale * that; dlogit (optional, real) = (sigmoid(l) - t) weight * scale / B. A term that is not finite
/// sets state.nonfinite. logit real [K,1,B,1], labels i32 [K,1,B,1].
struct BinaryLossParams { double scale = 1; std::int32_t positive = 1; };
namespace binary_cross_entropy { enum Slot { logit, labels, weight, state, dlogit, slots }; extern const OpDef kDef; }

/// mse. Mean over rows and cols of (p - t)^2: state.loss += sum over rows of the row's mean over cols, state.rows += B;
/// dprediction (optional) = 2 (p - t) * scale / (B C). The three are of one type, real or stat. as_loss false: state.penalty += scale * mean instead of
/// loss and rows. (cross_entropy is always a loss.)
namespace mse { enum Slot { prediction, target, state, dprediction, slots }; extern const OpDef kDef; }

/// cosine_diversity. o real [K,G,B,C]: for each unordered pair of groups i < j: c_ij = mean over b of <o_ib, o_jb> / (max(|o_ib|, 1e-12)
/// max(|o_jb|, 1e-12)) / temperature; penalty = weight * mean over pairs |c_ij|. state.penalty += scale * penalty; dout (+) = scale * d penalty / d o.
/// d|c| at c = 0 is 0. G = 1 has no pairs: penalty 0, gradient 0.
struct DiversityParams { double weight = 0, temperature = 1, scale = 1; };
namespace cosine_diversity { enum Slot { o, state, dout, slots }; extern const OpDef kDef; }

// clang-format on

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
