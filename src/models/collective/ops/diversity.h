#pragma once
// A penalty on outputs that are alike. Conventions: ops/op.h, ops/loss/loss.h.

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// cosine_diversity. o real [K,G,B,C]: for each unordered pair of groups i < j: c_ij = mean over b of <o_ib, o_jb> / (max(|o_ib|, 1e-12)
/// max(|o_jb|, 1e-12)) / temperature; penalty = weight * mean over pairs |c_ij|. state.penalty += scale * penalty; dout (+) = scale * d penalty / d o.
/// d|c| at c = 0 is 0. G = 1 has no pairs: penalty 0, gradient 0.
struct DiversityParams { double weight = 0, temperature = 1, scale = 1; };
namespace cosine_diversity { enum Slot { o, state, dout, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
