#pragma once
// Layer norm. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// layernorm_forward: over the cols of each row of x, or of sum = x + residual (real; both or neither; sum is written). Saves mean and inv_std, stat
/// [K,G,B,1]. gamma, beta stat [K,G,1,C].
/// layernorm_backward: x is what was normalised. dx (+), dgamma (+), dbeta (+); dresidual (+), optional, gets what dx gets.
struct LayerNormParams { float eps = 1e-5f; };
namespace layernorm_forward { enum Slot { x, residual, gamma, beta, mean, inv_std, sum, y, slots }; extern const OpDef kDef; }
namespace layernorm_backward { enum Slot { dy, x, gamma, mean, inv_std, dx, dresidual, dgamma, dbeta, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
