#pragma once
// The operators of the step program and their contract. Every operator exists in three backends (ref, cpu, cuda) that read the
// same record; a missing entry is an error when a program is built.
//
// Conventions
// - Operands are [K, G, rows, cols] (tensor/view.h). B = rows of a batch, In/Out = layer widths.
// - `real` and `stat` as in tensor/dtype.h. Matrix products accumulate in stat. Norms, losses, statistics are computed in stat.
// - Parameters are stat; weights of matrix products come as `real` (on CUDA in bf16: a copy that the optimizer keeps up to date).
// - A slot marked (+) obeys the record's `accumulate` bit for that slot: set, it adds to what is there; clear, it overwrites.
// - Optional slots are absent views (`present() == false`).
// - `state` slots are u8 [K,1,1,sizeof(MemberState)], stride_k a multiple of 8; state_of() below gives a member's block.
// - An operand that is only read may have stride_g or stride_k 0: one matrix for all groups or members.
// - Random numbers: bits = base::random_bits(state.seed, state.step, state.micro, params.op_number, element) with
//   element = (group * rows + row) * cols + col inside one member; dropout keeps an element iff bits >= uint32(p * 2^32) and
//   scales kept ones by 1 / (1 - p). The mask is never stored. Programs for evaluation pass p = 0, then no state is needed.

#include <array>
#include <cstdint>
#include <string>
#include <variant>

#include "ops/flow_op.h"
#include "ops/member_state.h"
#include "ops/text_op.h"
#include "tensor/view.h"

namespace millrace::ops {

// Parameters and slots of an operator stay on one line each, below its contract.
// clang-format off
enum class OpId : std::uint8_t {
    step_begin, micro_end, metrics_push, fill, copy,
    gather_images, gather_rows,
    dense_forward, dense_backward, linear_dgrad, linear_wgrad,
    add, pointwise_forward, pointwise_backward,
    layernorm_forward, layernorm_backward,
    embedding_forward, embedding_backward,
    cross_entropy, mse, cosine_diversity,
    grad_norm, optimizer,
    column_sum, gru_forward, gru_backward,
    flow_begin, flow_begin_backward, flow_neuron_forward, flow_neuron_backward, flow_move, flow_move_backward,
    flow_spawn, flow_spawn_state, flow_spawn_backward, flow_spawn_state_backward, flow_count, flow_lay, flow_lay_backward,
    flow_rest, flow_rest_backward, flow_clear,
    token_embed, token_embed_backward, attention_forward, attention_backward, masked_mean, masked_mean_backward,
    token_cross_entropy, token_choose,
    count_
};
constexpr int kOpCount = static_cast<int>(OpId::count_);
const char* name_of(OpId op);

enum class Activation : std::uint8_t { none, relu, gelu, tanh, sigmoid };  // gelu: exact, by erf
enum class Norm : std::uint8_t { none, batch_train, batch_eval };
enum class OptimizerKind : std::uint8_t { sgd, adam, adamw };
enum class ScheduleKind : std::uint8_t { constant, cosine, step };

/// step_begin. state[K]: step += 1, micro = 0, nonfinite = 0, rows = correct = 0, loss = penalty = 0; lr by the schedule at step s
/// (from 1): factor = warm-up min(1, s / warmup_steps) when s <= warmup_steps, else with t = s - warmup_steps, n = max(1, total_steps -
/// warmup_steps): constant 1; cosine floor + (1 - floor) * (1 + cos(pi * min(t, n) / n)) / 2; step gamma^(floor((s - 1) / interval)).
/// lr = base_lr * factor, computed in double, stored as float. bias1 = 1 - beta1^(applied + 1), bias2 likewise.
struct StepBeginParams {
    ScheduleKind schedule = ScheduleKind::constant;
    std::uint32_t warmup_steps = 0, total_steps = 0, interval = 1;
    double floor = 0, gamma = 1;
};
namespace step_begin { enum Slot { state, slots }; }

/// micro_end. Closes a micro-batch: training: micro += 1, position += rows; when position >= samples: position = 0, epoch += 1.
/// Evaluation: eval_position += rows.
struct MicroEndParams { std::uint32_t rows = 0, samples = 0; bool training = true; };
namespace micro_end { enum Slot { state, slots }; }

/// metrics_push. Copies the step's values of every member into ring row (sequence mod capacity), ring [1,1,capacity,K * sizeof(MetricsRow)] u8.
/// sequence = (number of earlier pushes) + 1, kept in `counter` [1,1,1,8] u8 (one uint64). A reader may look at any time: `sequence`
/// of each row is stored last, with release order. `clock` is the one thing a step writes that is not the same every time.
struct MetricsPushParams { std::uint32_t capacity = 0; };
namespace metrics_push { enum Slot { state, counter, ring, slots }; }

/// fill. out = value, for real, stat and i32.
struct FillParams { double value = 0; };
namespace fill { enum Slot { out, slots }; }

/// copy. out = in, converting between f64, f32, bf16, i32; shapes equal.
struct CopyParams {};
namespace copy { enum Slot { in, out, slots }; }

/// gather_images. Row b of member m takes sample number q = first_row + b of the pass, where first_row is state.position (training) or
/// state.eval_position: index = subset[order(q)], order(q) = base::shuffled_index(state.seed, state.epoch, q, samples) when `shuffle`, else q.
/// q >= samples leaves the row undefined (programs never ask for it). Pixel p: x = (image[index][p] / 255 - mean) / std, optionally
/// after the affine augmentation below. labels copied to y. Slots: images u8 [1,1,N,P], labels u8 [1,1,N,1], subset i32
/// [1,1,samples,1], state, x real [K,1,B,P] (row stride free), y i32 [K,1,B,1].
/// Augmentation (side x side grey images): one composed affine, nearest neighbour, zero fill outside, drawn per sample from
/// random_bits(seed, step, micro, op_number, b * 8 + j) with U(+-r) = (2 uniform01 - 1) * r: j=0 angle U(+-rotate degrees), j=1 dx,
/// j=2 dy: whole pixels, floor(U(+-shift) * side + 0.5), j=3 scale 1 + U(+-scale), j=4 flip if uniform01 < flip. Output pixel column u,
/// row v, centre c = (side-1)/2: if flipped u' = side-1-u else u; then with (a, b) = ((u',v) - c - (dx,dy)) / scale the source is column
/// cos(angle) a + sin(angle) b + c, row cos(angle) b - sin(angle) a + c, each rounded by floor(p + 0.5); outside the image the pixel is 0.
struct GatherImagesParams {
    std::uint32_t samples = 0, op_number = 0;
    bool shuffle = true, training = true, augment = false;
    float mean = 0, std = 1;
    std::uint32_t side = 28;
    float rotate = 0, shift = 0, scale = 0, flip = 0;
};
namespace gather_images { enum Slot { images, labels, subset, state, x, y, slots }; }

/// gather_rows. Rows of a table in the order of gather_images: row b of member m is table[index] with the same q, first_row, order and
/// index; q >= samples leaves the row undefined. Records with equal parameters over several tables give rows that belong together.
/// Slots: table stat [1,1,N,D], subset i32 [1,1,samples,1], state, out real or stat [K,1,B,D] (row stride free); or table and out both i32.
struct GatherRowsParams { std::uint32_t samples = 0; bool shuffle = true, training = true; };
namespace gather_rows { enum Slot { table, subset, state, out, slots }; }

/// dense_forward. z = x w^T + bias; then per Norm: none: u = z. batch_train: mean and biased variance of z over the B rows (per member,
/// group and column), xhat = (z - mean) * inv_std with inv_std = 1 / sqrt(var + eps), u = gamma * xhat + beta; running_mean and
/// running_var (unbiased, B / (B - 1); B = 1 keeps the biased value) move by `momentum`, columns with a mean or variance that is not
/// finite excepted: a dropped step must not poison evaluation. batch_eval: u = gamma * (z - running_mean) / sqrt(running_var + eps) +
/// beta. Then a = act(u), y = dropout(a) when training and p > 0.
/// Slots: x real [K,G,B,In]; w real [K,G,Out,In]; bias stat [K,G,1,Out] optional; gamma, beta, running_mean, running_var stat [K,G,1,Out]
/// with a norm; saved real [K,G,B,Out] (training, when norm or activation is present): xhat with batch_train, else u; inv_std stat
/// [K,G,1,Out] with batch_train; state (with dropout); y real [K,G,B,Out]. Where `saved` is rounded to real, u is computed from the
/// rounded value so that the backward pass sees the same sign.
struct DenseParams {
    Norm norm = Norm::none;
    Activation activation = Activation::none;
    float dropout = 0;
    float eps = 1e-5f, momentum = 0.1f;
    std::uint32_t op_number = 0;
};
namespace dense_forward { enum Slot { x, w, bias, gamma, beta, running_mean, running_var, saved, inv_std, state, y, slots }; }

/// dense_backward. From dy to dz, the gradient before the norm: dropout, activation, norm in reverse. With batch_train:
/// du = dy through dropout and activation; dgamma (+) = sum_b du * xhat, dbeta (+) = sum_b du, dz = gamma * inv_std / B * (B du - sum du
/// - xhat * sum(du * xhat)); the bias gradient is zero by construction and is not written. With none: dz = du, dbias (+) = sum_b dz.
/// Slots: dy real, saved, gamma, beta, inv_std, state, dz real [K,G,B,Out] (may be the memory of dy), dgamma, dbeta, dbias stat [K,G,1,Out].
/// `batch_eval` never appears. Sums run over rows in ascending order of blocks fixed by the shape alone.
namespace dense_backward { enum Slot { dy, saved, gamma, beta, inv_std, state, dz, dgamma, dbeta, dbias, slots }; }

/// linear_dgrad. dx (+) = dz w. dz real [K,G,B,Out], w real [K,G,Out,In] (In may be a column window of the layer's weight), dx real or stat [K,G,B,C],
/// C >= In: further columns become 0, or stay when adding.
/// linear_wgrad. dw (+) = dz^T x. dw stat [K,G,Out,In], x real [K,G,B,C], C >= In: further columns do not matter.
struct LinearGradParams {};
namespace linear_dgrad { enum Slot { dz, w, dx, slots }; }
namespace linear_wgrad { enum Slot { dz, x, dw, slots }; }

/// add. out (+) = a + b (b optional). All real, shapes equal.
struct AddParams {};
namespace add { enum Slot { a, b, out, slots }; }

/// pointwise_forward: y = dropout(act(x)). pointwise_backward: dx (+) = dy * mask/(1-p) * act'(x). x is the saved input.
struct PointwiseParams { Activation activation = Activation::none; float dropout = 0; std::uint32_t op_number = 0; };
namespace pointwise_forward { enum Slot { x, state, y, slots }; }
namespace pointwise_backward { enum Slot { dy, x, state, dx, slots }; }

/// layernorm_forward: over the cols of each row. Saves mean and inv_std, stat [K,G,B,1]. gamma, beta stat [K,G,1,C].
/// layernorm_backward: dx (+), dgamma (+), dbeta (+).
struct LayerNormParams { float eps = 1e-5f; };
namespace layernorm_forward { enum Slot { x, gamma, beta, mean, inv_std, y, slots }; }
namespace layernorm_backward { enum Slot { dy, x, gamma, mean, inv_std, dx, dgamma, dbeta, slots }; }

/// embedding_forward: y[b] = table[index[b]]; table stat [K,1,V,C], index i32 [K,1,B,1], y real [K,1,B,C].
/// embedding_backward: dtable[v] (+) = sum over b with index[b] == v of dy[b], in ascending b (deterministic).
/// An index outside [0, V) reads zeros, adds nothing and sets state.nonfinite.
struct EmbeddingParams {};
namespace embedding_forward { enum Slot { table, index, state, y, slots }; }
namespace embedding_backward { enum Slot { dy, index, dtable, slots }; }

/// cross_entropy. Per row: loss = log(sum exp(l - max)) - (l[label] - max), in stat. state.loss += sum over rows (ascending),
/// state.rows += B, state.correct += rows whose largest logit (lowest index on ties) is the label. dlogits (optional, real)
/// = (softmax - onehot) * scale / B, where `scale` is the micro-batch's share of the step's rows (1 without accumulation).
/// A non-finite loss sets state.nonfinite. logits real [K,1,B,C], labels i32 [K,1,B,1]; a label outside [0, C) sets nonfinite, loss 0, gradient 0.
struct LossParams { double scale = 1; bool as_loss = true; };
namespace cross_entropy { enum Slot { logits, labels, state, dlogits, slots }; }

/// mse. Mean over rows and cols of (p - t)^2: state.loss += sum over rows of the row's mean over cols, state.rows += B;
/// dprediction (optional) = 2 (p - t) * scale / (B C). The three are of one type, real or stat. as_loss false: state.penalty += scale * mean instead of
/// loss and rows. (cross_entropy is always a loss.)
namespace mse { enum Slot { prediction, target, state, dprediction, slots }; }

/// cosine_diversity. o real [K,G,B,C]: for each unordered pair of groups i < j: c_ij = mean over b of <o_ib, o_jb> / (max(|o_ib|, 1e-12)
/// max(|o_jb|, 1e-12)) / temperature; penalty = weight * mean over pairs |c_ij|. state.penalty += scale * penalty; dout (+) = scale * d penalty / d o.
/// d|c| at c = 0 is 0. G = 1 has no pairs: penalty 0, gradient 0.
struct DiversityParams { double weight = 0, temperature = 1, scale = 1; };
namespace cosine_diversity { enum Slot { o, state, dout, slots }; }

/// grad_norm. grads stat [K,1,1,P] (the whole arena of one member): state.grad_norm = sqrt(sum g^2), clip_scale = min(1, clip_norm /
/// (norm + 1e-6)) when clip_norm > 0 else 1; a non-finite norm sets state.nonfinite. `scratch` stat [K,1,1,kNormBlocks] holds partial sums
/// in a fixed order.
struct GradNormParams {};
constexpr int kNormBlocks = 256;
namespace grad_norm { enum Slot { grads, scratch, state, slots }; }

/// optimizer. Element-wise over the arenas [K,1,1,P]: when state.nonfinite: nothing but state.skipped += 1; else state.applied += 1 and with g' = g * clip_scale
/// sgd: g' += wd * p; buf = applied == 0 ? g' : beta1 * buf + g'; p -= lr * (beta1 != 0 ? buf : g')   (m = buf)
/// adam: g' += wd * p; m = beta1 m + (1 - beta1) g'; v = beta2 v + (1 - beta2) g'^2; p -= (lr / bias1) * m / (sqrt(v) / sqrt(bias2) + eps)
/// adamw: p -= lr * wd * p first, then adam with wd = 0.
/// copy16 (optional, bf16) receives the rounded p. grads are zeroed when `zero_grads`, in a dropped step too (a NaN left behind would
/// poison the next one). m may be absent for sgd without momentum, v for sgd. The counters of state change once, after all elements.
struct OptimizerParams { OptimizerKind kind = OptimizerKind::adam; bool zero_grads = false; };
namespace optimizer { enum Slot { params, grads, m, v, copy16, state, slots }; }

// clang-format on
using Params = std::variant<StepBeginParams, MicroEndParams, MetricsPushParams, FillParams, CopyParams, GatherImagesParams,
                            GatherRowsParams, DenseParams, LinearGradParams, AddParams, PointwiseParams, LayerNormParams,
                            EmbeddingParams, LossParams, DiversityParams, GradNormParams, OptimizerParams, ColumnSumParams,
                            GruParams, GruBackwardParams, FlowGridParams, NeuronParams, FlowMoveParams, FlowSpawnParams,
                            FlowCountParams, FlowRestParams, TokenParams, AttentionParams, TokenLossParams, TokenChooseParams>;

constexpr int kMaxSlots = 16;
/// The last slot of any record may name flow counters, i32 [K,1,1,kFlowCounters]: neighbours that name the same ones are done
/// only while a flow of some member is alive by them (flow_rule.h) when the first of them is reached. Where nobody is alive,
/// doing them must change nothing but what a flow_rest behind them writes: a backend may do them all the same.
constexpr int kWhile = kMaxSlots - 1;

/// One line of the step program: plain data.
struct Record {
    OpId op = OpId::fill;
    Params params;
    std::array<tensor::View, kMaxSlots> slots;
    std::uint32_t accumulate = 0;  ///< bit per slot: add instead of overwrite
    std::string layer;             ///< who asked for it, for messages: "analysts.0", "encoder"

    [[nodiscard]] bool accumulates(int slot) const { return (accumulate >> slot & 1u) != 0; }
};

/// Number of slots of an operator, the name of one, and whether running the operator writes it.
int slot_count(OpId op);
const char* slot_name(OpId op, int slot);
bool slot_is_written(OpId op, int slot);

/// A record whose views are bound to memory.
struct Bound {
    const Record* record = nullptr;
    std::array<tensor::Operand, kMaxSlots> operands;

    [[nodiscard]] const tensor::Operand& operator[](int slot) const { return operands[static_cast<std::size_t>(slot)]; }
    template <class P>
    [[nodiscard]] const P& params() const {
        return std::get<P>(record->params);
    }
    [[nodiscard]] bool accumulates(int slot) const { return record->accumulates(slot); }
};

/// The block of one member behind a `state` slot.
inline MemberState& state_of(const tensor::Operand& state, std::int64_t member) {
    return *reinterpret_cast<MemberState*>(state.at<std::uint8_t>(member));
}

}  // namespace millrace::ops
