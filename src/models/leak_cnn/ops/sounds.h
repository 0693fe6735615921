#pragma once
// Mel bands (data/sound/mel.h) as an operator, losses with weights of the member, and rewrites of one record that put kernels of
// their own in the place of the general ones on CUDA, for convolutions of three taps along one column. Conventions: ops/op.h,
// ops/loss/loss.h.

#include "ops/loss/loss.h"
#include "ops/op.h"
#include "ops/rewrite.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// mel_bands. y = 20 log10(max(m, 1e-10)) for the 64 bands m of each window of 512 samples. Computed in stat: a bin's
/// error is about 1e-7 of the largest bin, so that f32 does not see bands 120 dB below the loudest.
/// Slots: x stat [K,1,B,512], y stat or f16 [K,1,B,64] (row strides free).
struct MelBandsParams {};
namespace mel_bands { enum Slot { x, y, slots }; extern const OpDef kDef; }

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

namespace line_forward_rewrite { extern const Rewrite kRewrite; }
namespace line_backward_rewrite { extern const Rewrite kRewrite; }

// clang-format on
}  // namespace millrace::ops
