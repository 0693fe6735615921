#pragma once
// Losses with weights of the member. Conventions: ops/op.h, ops/loss/loss.h.

#include "ops/loss/loss.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// weighted_cross_entropy. Per row, with ce as above, p = exp(-ce), q = max(1 - p, 1e-8) and w = weights[label]: r = w q^gamma ce; weights stat [K,1,1,C]
/// and gamma stat [K,1,1,1] are data of the member. loss = sum of r / d with d = B when `by_rows`, else the sum of w over the valid rows (no loss, no
/// gradient when that is 0). state.loss += B loss; rows, correct, nonfinite, labels outside as above. dlogits (optional, real)
/// = (softmax - onehot) w (q^gamma + gamma q^(gamma - 1) p ce) * scale / d.
/// total (loss_total of the labels and weights, optional, without `by_rows`) takes the place of d and of B in state.loss.
struct WeightedLossParams { double scale = 1; bool by_rows = false; };
namespace weighted_cross_entropy { enum Slot { logits, labels, weights, gamma, state, dlogits, total, slots }; extern const OpDef kDef; }

/// binary_cross_entropy. A term beside the loss: with t = 1 where label == positive, else 0: mean over rows of log(1 + exp(l)) - t l, times weight,
/// stat [K,1,1,1] of the member. state.penalty += scale * that; dlogit (optional, real) = (sigmoid(l) - t) weight * scale / B. A term that is not finite
/// sets state.nonfinite. logit real [K,1,B,1], labels i32 [K,1,B,1].
struct BinaryLossParams { double scale = 1; std::int32_t positive = 1; };
namespace binary_cross_entropy { enum Slot { logit, labels, weight, state, dlogit, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
