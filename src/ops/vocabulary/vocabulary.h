#pragma once
// The last layer of a language model and its loss in one operator, which need not store all logits.
// Conventions: ops/op.h; sequences as in ops/text/text.h.

#include "ops/text/text.h"

namespace millrace::ops {

// clang-format off

/// vocabulary_loss. logits[row][v] = x[row] . weight[v] + bias[v]; row b * N + first + t is about token ids[b][t], t < length. Losses, their mean m over all tokens of the
/// batch or the step (total), state and tally as in token_cross_entropy (TokenLossParams); an id outside [0, V) has loss 0, gradient 0 and sets state.nonfinite.
/// Slots: x real [K,1,B*N,C]; weight real [K,1,V,C]; bias stat [K,1,1,V], optional; ids i32 [K,1,B,T], lengths i32 [K,1,B,1], first + T <= N; state; losses stat
/// [K,1,B*N,1]: of the rows that predict a token of the vocabulary, 0 elsewhere. Gradients of scale * m, times state.loss_scale (1 in bf16), each optional: dx (+) real [K,1,B*N,C], 0 for rows that predict
/// nothing; dweight (+) stat [K,1,V,C]; dbias (+) stat [K,1,1,V]. tally (+). What x holds in rows that predict nothing must be finite and leaves no trace.
namespace vocabulary_loss { enum Slot { x, weight, bias, ids, lengths, state, losses, dx, dweight, dbias, tally, total, slots }; extern const OpDef kDef; }

// clang-format on

}  // namespace millrace::ops
