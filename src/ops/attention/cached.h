#pragma once
// Attention of one new position over those before it, for writing text. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// attention_cached. qkv real [K,1,B,3C]: query, key and value of the new position of B sequences, heads as in attention_forward. position i32 [1,1,1,1] = p, cut to
/// [0, N). cache real [K,1,B*N,2C] holds keys and values of the positions so far: row b * N + p receives those of the new one. out real [K,1,B,C]: as
/// attention_forward gives for a query at position p that sees positions 0 to p.
struct CachedAttentionParams { std::int32_t heads = 1; };
namespace attention_cached { enum Slot { qkv, position, cache, out, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
