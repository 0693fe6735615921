#pragma once
// Attention over the positions of a sequence. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// attention_forward. qkv real [K,1,B*N,3C]: queries, keys and values side by side; head h reads columns [h * C / heads, (h + 1) * C / heads) of each.
/// A filled position i sees the filled positions j, when `causal` only those with j <= i or j < P (the prefix is seen by all). Per head: score_ij = q_i . k_j /
/// sqrt(C / heads), out_i = sum_j softmax_j(score_ij) v_j; out real [K,1,B*N,C]. logsumexp stat [K,1,B*N,heads] = log sum_j exp(score_ij), for the backward
/// pass; 0 where not filled. N = rows / B; T = N - P >= 0.
/// attention_backward. From dout real [K,1,B*N,C], and out and logsumexp as attention_forward wrote them: dqkv real [K,1,B*N,3C] (written). dout of positions
/// that are not filled does not matter. delta stat [K,1,B*N,heads] is scratch: dout_i . out_i of each head, which is sum_j weight_ij dweight_ij.
struct AttentionParams { std::int32_t heads = 1, prefix = 0; bool causal = false; };
namespace attention_forward { enum Slot { qkv, lengths, logsumexp, out, slots }; extern const OpDef kDef; }
namespace attention_backward { enum Slot { dout, qkv, lengths, logsumexp, out, delta, dqkv, slots }; extern const OpDef kDef; }

/// attention_cached, of one new position over those before it, for writing text. qkv real [K,1,B,3C]: query, key and value of the new position of B sequences, heads
/// as in attention_forward. position i32 [1,1,1,1] = p, cut to [0, N). cache real [K,1,B*N,2C] holds keys and values of the positions so far: row b * N + p receives those of
/// the new one. out real [K,1,B,C]: as attention_forward gives for a query at position p that sees positions 0 to p.
struct CachedAttentionParams { std::int32_t heads = 1; };
namespace attention_cached { enum Slot { qkv, position, cache, out, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
