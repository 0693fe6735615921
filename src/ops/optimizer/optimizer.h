#pragma once
// Gradient norm and update. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };

/// grad_norm. grads stat [K,1,1,P] (the whole arena of one member): state.grad_norm = sqrt(sum g^2) / loss_scale over trainable groups, clip_scale = min(1,
/// clip_norm / (norm + 1e-6)) when clip_norm > 0 else 1, over loss_scale; a non-finite norm sets state.nonfinite. `scratch` stat [K,1,1,kNormBlocks] holds partial sums
/// in a fixed order.
struct GradNormParams {};
constexpr int kNormBlocks = 256;
namespace grad_norm { enum Slot { grads, scratch, state, groups, segments, slots }; extern const OpDef kDef; }

/// optimizer. Element-wise over the arenas [K,1,1,P]: when state.nonfinite: nothing but state.skipped += 1; else state.applied += 1, and in
/// each trainable group whose gain is not 0, with lr = state.lr * lr_factor * gain, wd = state.weight_decay * decay_factor, bias1, bias2 and applied (+= 1;
/// last_applied = state.step) of the group and g' = g * clip_scale * gradient_gain
/// sgd: g' += wd * p; buf = applied == 0 ? g' : beta1 * buf + g'; p -= lr * (beta1 != 0 ? buf : g')   (m = buf)
/// adam: g' += wd * p; m = beta1 m + (1 - beta1) g'; v = beta2 v + (1 - beta2) g'^2; p -= (lr / bias1) * m / (sqrt(v) / sqrt(bias2) + eps)
/// adamw: p -= lr * wd * p first, then adam with wd = 0.
/// copy16 (optional, bf16 or f16) receives the rounded p of the elements from first_copied on, a multiple of 4. On CUDA rows of grads that got no gradient may hold that of an
/// earlier step afterwards (ops/cuda/squares.h). m may be absent for sgd without momentum, v for sgd. The counters change once, after all elements, and state.adapt_loss_scale(dropped, scale_interval) comes last.
struct OptimizerParams { OptimizerKind kind = OptimizerKind::adam; std::uint32_t scale_interval = 0; std::int32_t first_copied = 0; };
namespace optimizer { enum Slot { params, grads, m, v, copy16, state, groups, segments, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
