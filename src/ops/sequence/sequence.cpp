#include "ops/sequence/sequence.h"

#include "ops/attention/attention.h"
#include "ops/dense/dense.h"
#include "ops/kernels.h"
#include "ops/norm/layernorm.h"
#include "ops/sequence/operands.h"
#include "ops/text/sequences.h"

namespace millrace::ops {
namespace {

using tensor::DType;
using tensor::Operand;

/// A matrix for each of x's members and groups, with whole rows.
bool fits(const Operand& o, const Operand& x, DType dtype, int rows, int cols) {
    return o.present() && o.dtype == dtype && o.k == x.k && o.g == x.g && o.rows == rows && o.cols == cols && has_whole_rows(o);
}

bool is_linear(const Bound& b, const Operand& x, int inputs, int outputs, Activation activation) {
    namespace at = dense_forward;
    if (b.record->op != &at::kDef) return false;
    const auto& p = b.params<DenseParams>();
    if (p.norm != Norm::none || p.activation != activation || !same_place(b[at::x], x)) return false;
    if (b[at::saved].present() && (activation == Activation::none || !fits(b[at::saved], x, x.dtype, x.rows, outputs)))
        return false;
    return tensor::size_of(x.dtype) == 2 && fits(x, x, x.dtype, x.rows, inputs) && fits(b[at::w], x, x.dtype, outputs, inputs) &&
           fits(b[at::bias], x, DType::f32, 1, outputs) && fits(b[at::y], x, x.dtype, x.rows, outputs);
}

bool is_norm(const Bound& b, const Operand& x, const Operand& residual) {
    namespace at = layernorm_forward;
    if (b.record->op != &at::kDef) return false;
    return same_place(b[at::x], x) && same_place(b[at::residual], residual) &&
           fits(b[at::gamma], x, DType::f32, 1, kLayerColumns) && fits(b[at::beta], x, DType::f32, 1, kLayerColumns) &&
           fits(b[at::sum], x, x.dtype, x.rows, kLayerColumns) && fits(b[at::y], x, x.dtype, x.rows, kLayerColumns) &&
           b[at::mean].present() && b[at::inv_std].present();
}

bool is_attention(const Bound& b, const Operand& qkv, const Operand& seen) {
    namespace at = attention_forward;
    if (b.record->op != &at::kDef) return false;
    const auto& p = b.params<AttentionParams>();
    const Operand &lengths = b[at::lengths], &logsumexp = b[at::logsumexp];
    const int positions = positions_of(qkv, lengths);
    return p.heads == kLayerHeads && p.prefix == 0 && p.causal && positions >= 1 && positions <= kMostPositions &&
           positions * lengths.rows == qkv.rows && same_abreast(b[at::qkv], qkv) && same_abreast(b[at::out], seen) &&
           lengths.k == qkv.k * qkv.g && logsumexp.k == lengths.k && logsumexp.present();
}

}  // namespace

bool is_sequence_layer(std::span<const Bound> records) {
    namespace dense = dense_forward;
    if (records.size() < SequenceLayer::kRecords) return false;
    const SequenceLayer l(records);
    if (l.in.record->op != &dense::kDef || l.out.record->op != &dense::kDef || l.norm1.record->op != &layernorm_forward::kDef ||
        l.widen.record->op != &dense::kDef || l.narrow.record->op != &dense::kDef)
        return false;
    const Operand &x = l.in[dense::x], &seen = l.out[dense::x], &h = l.norm1[layernorm_forward::y], &inner = l.widen[dense::y];
    return (inner.cols == kLayerColumns || inner.cols == 2 * kLayerColumns) &&
           is_linear(l.in, x, kLayerColumns, 3 * kLayerColumns, Activation::none) &&
           is_attention(l.attention, l.in[dense::y], seen) &&
           is_linear(l.out, seen, kLayerColumns, kLayerColumns, Activation::none) && is_norm(l.norm1, l.out[dense::y], x) &&
           is_linear(l.widen, h, kLayerColumns, inner.cols, Activation::gelu) &&
           is_linear(l.narrow, inner, inner.cols, kLayerColumns, Activation::none) && is_norm(l.norm2, l.narrow[dense::y], h) &&
           !drops(l.in) && !drops(l.widen) && drop_alike(l.out, l.narrow, dense::state);
}

Match match_sequence_layer(const Window& window) {
    if (!is_sequence_layer(window)) return {};
    constexpr std::size_t kOut = 2, kNarrow = 5;
    return Match::first(SequenceLayer::kRecords, {{kOut, dense_forward::y}, {kNarrow, dense_forward::y}});
}

MILLRACE_REWRITE(sequence_forward, dense_forward, 0);
MILLRACE_REWRITE(sequence_backward, layernorm_backward, 0);

}  // namespace millrace::ops
