#pragma once
// Sequences of tokens: embedding, mean over positions, loss, greedy choice. Conventions: ops/op.h.
//
// B = sequences, T = most tokens of one, P = vectors that stand before the tokens (the prefix, 0: none), N = P + T positions of a
// sequence, C = width. Values over positions are [K,1,B*N,C], row b * N + position. ids i32 [K,1,B,T] and lengths i32 [K,1,B,1]
// are read when an operator runs; a length counts as cut to [0, T]. The first P + length positions of a sequence are *filled*;
// what ids hold behind the length never matters. Positions that are not filled get zeros, give no gradient, and are attended to
// by no position.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// token_embed. y[b][p] = prefix[b][p] + position[p] for p < P, y[b][P + t] = table[ids[b][t]] + position[P + t] for t < length, zeros elsewhere. An id
/// outside [0, V) reads zeros from the table and sets state.nonfinite. Slots: table stat [K,1,V,C]; position stat [K,1,N,C]; before real [K,1,B,P*C]
/// (the prefix, absent when P = 0); ids; lengths; state; y real [K,1,B*N,C].
/// token_embed_backward. dtable (+) [K,1,V,C] stat = sums of dy over the tokens of each id, dposition (+) [K,1,N,C] stat = sums over sequences,
/// both in an order that ids and lengths alone decide; dbefore (+) real [K,1,B,P*C]. Each is optional. Ids outside [0, V) add to dposition alone.
struct TokenParams { std::int32_t prefix = 0; };
namespace token_embed { enum Slot { table, position, before, ids, lengths, state, y, slots }; extern const OpDef kDef; }
namespace token_embed_backward { enum Slot { dy, ids, lengths, dtable, dposition, dbefore, slots }; extern const OpDef kDef; }

/// masked_mean. y[b] = mean over the filled positions of x[b], zeros when there are none. x real [K,1,B*N,C], y real [K,1,B,C].
/// masked_mean_backward. dx (+) real [K,1,B*N,C] = dy[b] / filled positions, 0 where not filled.
namespace masked_mean { enum Slot { x, lengths, y, slots }; extern const OpDef kDef; }
namespace masked_mean_backward { enum Slot { dy, lengths, dx, slots }; extern const OpDef kDef; }

/// token_cross_entropy. logits real [K,1,B*N,V]; the logits at position first + t of a sequence (first = P - 1 for a decoder behind its prefix) are about
/// token t = ids[b][t], t < length; first >= 0, first + T <= N. Loss of a token as in cross_entropy; m = mean over all tokens of the batch, 0 when there are none.
/// dlogits (optional, real) = d(scale * m) * state.loss_scale, zeros where no token is predicted. as_loss: state.loss += B * m, state.rows += B; else state.penalty += scale * m.
/// tally (+) stat [K,1,1,kTallyColumns], optional: sum of losses, tokens, tokens whose largest logit (lowest index on ties) is the right one, sequences of at least one
/// token that have all right. A non-finite loss sets state.nonfinite; so does an id outside [0, V), with loss 0, gradient 0 and not right.
/// total (loss_total of the lengths, optional): the mean is over the tokens of the whole step, m = this batch's part of it, and its rows take the place of B in state.loss.
struct TokenLossParams { double scale = 1; std::int32_t first = 0; bool as_loss = false; };
namespace tally { enum Column { loss, tokens, right, whole }; }
constexpr int kTallyColumns = 4;
namespace token_cross_entropy { enum Slot { logits, ids, lengths, state, dlogits, tally, total, slots }; extern const OpDef kDef; }

/// token_choose. One step of greedy decoding, in place: a sequence with length < T whose last token is not `end` gets ids[b][length] = the number of the largest logit at
/// position first + length (lowest on ties; a NaN is never the largest), then length += 1. Others stay. logits real [K,1,B*N,V], V >= 1; ids, lengths written.
struct TokenChooseParams { std::int32_t first = 0, end = -1; };
namespace token_choose { enum Slot { logits, ids, lengths, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
