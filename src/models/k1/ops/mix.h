#pragma once
// Weighted sums of groups of columns. Conventions: ops/op.h.

#include <vector>

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// mix_groups. in real [K,1,B,N*C], out (+) real [K,1,B,M*C]: out_m = sum of weight * in_n over the terms {m, n, weight}, in their order; a group without terms
/// gets zeros. Terms are in ascending order of `out`, at most kMostTerms of them. C divides both widths.
struct MixTerm { std::int32_t out = 0, in = 0; float weight = 1; };
struct MixParams { std::int32_t cols = 1; std::vector<MixTerm> terms; };
constexpr std::size_t kMostTerms = 4096;
namespace mix_groups { enum Slot { in, out, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
