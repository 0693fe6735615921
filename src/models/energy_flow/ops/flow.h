#pragma once
// The operators of the energy flow model: what recurrent flows do on their way through a cube. Conventions: ops/op.h.
//
// N = rows of a flow table, B = samples, S = W * H cells of the surface (row-major, W columns), first = B * S. Row b * S + y * W
// + x starts at cell (x, y) of sample b; rows from `first` on are spare and filled by spawning. Positions are in [-1, 1]^3. A row
// is *alive* in a step when its flow is active at the step's beginning and the member has not stopped; rows that are not alive
// leave every operator as they entered it and give no gradient to parameters.

#include "ops/op.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off

/// Columns of a flow table, stat [K,1,N,kFlowColumns]. heading is +1 or -1; active 1 or 0; owner is the sample; parent is the row that
/// a flow born in the step before this table came from, else -1. The gradient of a flow table has the same shape; its columns from
/// heading on are 0.
namespace flow { enum Column { x, y, z, energy, heading, active, owner, parent }; }
constexpr int kFlowColumns = 8;

/// What a step left behind for the backward pass, stat [K,1,N,kMovedColumns]: gain and the three moves as applied (after tanh), bits (below),
/// children wanted, children admitted, first row of the admitted ones.
namespace moved { enum Column { gain, move_x, move_y, move_z, bits, wanted, admitted, first_child }; }
constexpr int kMovedColumns = 8;
/// A step mirrored x or y (an odd number of times), z was cut off at a plane, the row was alive.
enum MovedBit : std::int32_t { kMirroredX = 1, kMirroredY = 2, kCutZ = 4, kAlive = 8 };

/// Counts of one member, i32 [K,1,1,kFlowCounters]. steps: steps run before the stop; most, waited, stopped: the stop rule's memory; flow_steps: alive rows
/// summed over the steps, the work that was there to do; alive: 1 when a flow is left to do (flow_rule.h), which conditions ask.
namespace flow_counter { enum Column { used, spawned, refused, arrived_up, arrived_down, reflected, steps, most, waited, stopped, flow_steps, alive }; }
constexpr int kFlowCounters = 16;

/// flow_begin. Rows r < first: x = -1 + 2 (r mod W) / (W - 1), y likewise by row, z = 0, energy = e[b][cell], heading -1 when the energy is
/// negative, else +1, active 1, owner b, parent -1. Spare rows: zeros, heading 1, active 0, parent -1. counters: zeros, used = first, alive = first > 0.
/// Slots: e real [K,1,B,S]; flow stat [K,1,N,8], N >= B * S; counters. W, H >= 2.
/// flow_begin_backward. de real [K,1,B,S] = energy column of dflow, rows below first.
struct FlowGridParams { std::int32_t width = 2, height = 2; };
namespace flow_begin { enum Slot { e, flow, counters, slots }; extern const OpDef kDef; }
namespace flow_begin_backward { enum Slot { dflow, de, slots }; extern const OpDef kDef; }

/// Where the tensors of the neuron lie in its span of parameters (elements), in this order: place.weight [3,3], place.bias [3],
/// net.0.weight [32,4], .bias [32], net.1.weight [32], .bias [32] (LayerNorm, eps 1e-5), net.3.weight [32,32], .bias [32], net.4.weight [32],
/// .bias [32], net.6.weight [64,32], .bias [64].
constexpr int kNeuronTensors = 12, kNeuronHidden = 32, kNeuronFeatures = 64, kNeuronSizes[kNeuronTensors] = {9, 3, 128, 32, 32, 32, 1024, 32, 32, 32, 2048, 64};
struct NeuronParams { std::int32_t offsets[kNeuronTensors] = {}; };
/// flow_neuron_forward. v = (place.weight p + place.bias, energy); f = net.6(gelu(LN(net.3(gelu(LN(net.0(v))))))), in stat.
/// out real [K,1,N,C], C >= 65: columns 0..63 f, 64 energy, the rest 0. Rows that are not alive: zeros. params stat [K,1,1,P]: the span.
/// flow_neuron_backward. From dout real [K,1,N,C] (columns 0..64): dparams (+) [K,1,1,P] stat at the same offsets (nothing between them is
/// touched), dflow (+) stat: position and energy columns. Recomputes the forward pass. Sums over rows in an order fixed by the shape.
namespace flow_neuron_forward { enum Slot { flow, params, counters, out, slots }; extern const OpDef kDef; }
namespace flow_neuron_backward { enum Slot { flow, params, counters, dout, dparams, dflow, slots }; extern const OpDef kDef; }

/// flow_move. u = heads real [K,1,N,4] (energy, move x, y, z before tanh). gain = tanh(u_0) / 2, move = tanh(u_1..3) / 2. raw = position + move +
/// (0, 0, heading * drift) + noise * (2 / (W - 1), 2 / (H - 1), 0) * normal, the normals by random_normal(seed, step, micro, op_number, 2 * row + j)
/// when noise > 0. x and y are mirrored at -1 and 1 for any overshoot: fold(v) = v when |v| <= 1, else 1 - | (v + 1) mod 4 - 2 | (the remainder in
/// [0, 4)); z is cut to [-1, 1]. Alive rows: position, energy + gain, active = |raw z| < 1; heading and owner stay. Others as they were.
/// wanted = when still active and stride > spawn_length: min(max_spawn, floor(stride / spawn_length)), else 0; stride is the distance from
/// the old position to the new. parent = -1 everywhere. admitted = first_child = 0.
/// flow_move_backward. From dafter stat: du real [K,1,N,4], dbefore (+) stat [K,1,N,8]: alive rows: d raw_x = +-dx by mirroring, d raw_z = 0 when
/// cut; dbefore (+) = d raw, energy as it is; du_0 = denergy (1 - 4 gain^2) / 2, du_1.. = d raw (1 - 4 move^2) / 2. Others: du = 0, dbefore (+) = dafter.
struct FlowMoveParams {
    std::int32_t width = 2, height = 2;
    float drift = 0, noise = 0, spawn_length = 0;
    std::int32_t max_spawn = 0;
    std::uint32_t op_number = 0;
};
namespace flow_move { enum Slot { before, u, state, counters, moved, after, slots }; extern const OpDef kDef; }
namespace flow_move_backward { enum Slot { dafter, moved, du, dbefore, slots }; extern const OpDef kDef; }

/// flow_spawn. Only in programs with spare rows (N > first), after flow_move. In row order: begin = used + wanted of the rows before; admitted =
/// min(wanted, max(0, N - begin)), first_child = begin (rows that want none: both stay 0); energy /= 1 + admitted; child rows: position of
/// the parent in `before`, the parent's new energy, heading and owner, active 1, parent = its row. used += sum of admitted; spawned, refused counted.
/// flow_spawn_state. h[child] = h[parent] for rows with a parent, in place; real [K,1,N,H].
/// flow_spawn_backward. Before flow_move_backward, which then adds. dafter stat in place: a parent's energy gradient becomes (its own + its
/// children's) / (1 + admitted), children's rows become 0. dbefore (+) stat: position of a parent (+) = sum of its children's position gradients in row
/// order, the rest (+) = 0.
/// flow_spawn_state_backward. dh stat in place: dh[parent] += dh of its children in row order, dh[child] = 0.
struct FlowSpawnParams {};
namespace flow_spawn { enum Slot { before, flow, moved, counters, slots }; extern const OpDef kDef; }
namespace flow_spawn_state { enum Slot { flow, h, slots }; extern const OpDef kDef; }
namespace flow_spawn_backward { enum Slot { moved, dafter, dbefore, slots }; extern const OpDef kDef; }
namespace flow_spawn_state_backward { enum Slot { moved, dh, slots }; extern const OpDef kDef; }

/// flow_count. next = counters after the step; counters stay as they are, so that the backward pass knows which members had stopped before which step. A member
/// that has stopped: next = counters. Otherwise, ending step t (from 0): steps = t + 1; flow_steps += alive rows (by their bit), reflected += their mirrored coordinates;
/// arrived_up and arrived_down = rows below used that are not active, by the sign of z; done = arrived. Then: done > most: waited = 0, most = done;
/// else waited += 1 when most > 0. stopped = 1 when early_stop, t + 1 >= min_steps and (done >= stop_at * used or waited >= patience).
struct FlowCountParams {
    std::int32_t t = 0, min_steps = 0, patience = 0;
    double stop_at = 1;
    bool early_stop = false;
};
namespace flow_count { enum Slot { flow, moved, counters, next, slots }; extern const OpDef kDef; }

/// flow_skip. Behind a step that was skipped: of members of which no flow is alive by `counters`: after = before with parent
/// -1, next = as flow_count leaves it when no flow moves; the others stay as they are. Slots: counters, before and after stat [K,1,N,8], next.
/// flow_skip_backward. The same members: dbefore = dafter, stat [K,1,N,8].
/// flow_clear. Members of which a flow is alive by `earlier` but none by `counters`: out_i = 0, real or stat, [K,1,N,any]; they fill up from 0.
struct FlowSkipParams {};
namespace flow_skip { enum Slot { counters, before, after, next, slots }; extern const OpDef kDef; }
namespace flow_skip_backward { enum Slot { counters, dafter, dbefore, slots }; extern const OpDef kDef; }
namespace flow_clear { enum Slot { counters, earlier, out0, slots = out0 + 13 }; extern const OpDef kDef; }

/// flow_scatter. load = energy * (active ? |z| : 1); column = (x + 1) / 2 (W - 1), left = floor(column) in [0, W - 2], share right = column - left; rows likewise.
/// The four cells around get load times the bilinear shares, in the surface of the owner: surface stat [K,1,B,S] (written). Deterministic: sums are of
/// integers, multiples of 2^-40 of a unit. A load that is not finite or beyond 2^20 sets state.nonfinite and scatters nothing.
/// flow_scatter_backward. dflow stat [K,1,N,8] (written) from dsurface stat; zeros in rows that scattered nothing.
namespace flow_scatter { enum Slot { flow, state, surface, slots }; extern const OpDef kDef; }
namespace flow_scatter_backward { enum Slot { flow, dsurface, dflow, slots }; extern const OpDef kDef; }

// clang-format on
}  // namespace millrace::ops
