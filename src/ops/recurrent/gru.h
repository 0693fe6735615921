#pragma once
// Gated recurrent unit. Conventions: ops/op.h.

#include "ops/op.h"

namespace millrace::ops {

// clang-format off

/// gru_forward. r = sigma(W_ir x + b_ir + W_hr h + b_hr), z likewise, hn = W_hn h + b_hn, n = tanh(W_in x + b_in + r hn),
/// out = (1 - z) n + z h; rows that do not take part: out = h. Slots: x real [K,1,N,C], C >= In (further columns hold finite numbers that do not matter); h real [K,1,N,H];
/// mask stat [K,1,N,1] and flag i32 [K,1,1,1], optional: a row takes part unless its mask or its member's flag is 0; w_ih real [K,1,3H,In], w_hh real [K,1,3H,H] (rows r, z, n); b_ih, b_hh stat [K,1,1,3H]; scratch stat [K,1,N,6H];
/// gates real [K,1,N,4H] (training): r, z, n, hn, undefined in rows that do not take part; out real [K,1,N,H], not the memory of h.
/// gru_backward. dh stat [K,1,N,H], in place: on entry the gradient of the state after the step, as far as it is known (params.begins:
/// nothing is, its content does not matter); the pairs that are there add a_i w_i, a_i real [K,1,N,C_i], w_i real [K,1,C_i,H]. With that sum d:
/// dgates real [K,1,N,4H] = d r_pre, d z_pre, d n_pre, d hn and dh = z * d; rows that do not take part: dgates 0, dh = d. Pairs fill up from 0.
struct GruParams {};
struct GruBackwardParams { bool begins = false; };
namespace gru_forward { enum Slot { x, h, mask, flag, w_ih, w_hh, b_ih, b_hh, scratch, gates, out, slots }; extern const OpDef kDef; }
namespace gru_backward { enum Slot { dh, gates, h, mask, flag, a0, w0, a1, w1, a2, w2, a3, w3, dgates, slots }; extern const OpDef kDef; }
constexpr int kGruPairs = 4;

// clang-format on
}  // namespace millrace::ops
