#include "ops/sequence/sequence.h"

#include <algorithm>
#include <iterator>

#include "ops/attention/attention.h"
#include "ops/dense/dense.h"
#include "ops/kernels.h"
#include "ops/norm/layernorm.h"
#include "ops/text/sequences.h"

namespace millrace::ops {
namespace {

using tensor::DType;
using tensor::Operand;

/// Of the layers that the kernels take: columns, heads, positions of a sequence, columns of the feed-forward part (this or half
/// of it).
constexpr int kLayerColumns = 128, kLayerHeads = 4, kLeastPositions = 16, kMostPositions = 64, kMostInner = 256;

/// Whether rows begin at multiples of 16 bytes and strides have 31 bits.
bool has_whole_rows(const Operand& o) {
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    const auto whole = [size](std::int64_t stride) { return stride * size % 16 == 0 && stride <= INT32_MAX; };
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && (o.rows <= 1 || whole(o.stride_row)) &&
           (o.g <= 1 || whole(o.stride_g)) && (o.k <= 1 || whole(o.stride_k));
}

/// same_place where attention has the groups of `a` as members.
bool same_abreast(const Operand& attention, Operand a) {
    if (a.g > 1) {
        if (a.k > 1) return false;
        a.k = a.g;
        a.stride_k = a.stride_g;
        a.g = 1;
    }
    return same_place(attention, a);
}

bool drops(const Bound& dense) { return dense.params<DenseParams>().dropout > 0; }
/// Whether two linear layers drop by the same states, or neither drops. `state`: that slot of both.
bool drop_alike(const Bound& a, const Bound& b, int state) {
    return drops(a) == a[state].present() && drops(b) == b[state].present() && same_place(a[state], b[state]);
}

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

/// In 16 bits: a record's operands have one type, and so have those of records that read each other's.
bool is_aligned(const Operand& o) { return tensor::size_of(o.dtype) == 2 && has_whole_rows(o); }

bool is_plain(const Bound& dense, Activation activation) {
    const auto& p = dense.params<DenseParams>();
    return p.norm == Norm::none && p.activation == activation && dense[dense_backward::dbias].present();
}
/// A linear layer whose dz is its dy, or what dropout leaves of it.
bool is_linear(const Bound& dense) {
    using namespace dense_backward;
    return is_plain(dense, Activation::none) && (drops(dense) ? is_aligned(dense[dz]) : same_place(dense[dy], dense[dz]));
}
bool is_norm(const Bound& norm) {
    using namespace layernorm_backward;
    return norm[x].cols == kLayerColumns && is_aligned(norm[x]) && is_aligned(norm[dx]) && has_whole_rows(norm[gamma]) &&
           norm[dresidual].present() && norm[dgamma].present() && norm[dbeta].present() && !norm.accumulates(dx);
}
/// dz w with w [outputs, inputs] of every group.
bool is_product(const Bound& dgrad, int outputs, int inputs) {
    using namespace linear_dgrad;
    return dgrad[w].rows == outputs && dgrad[w].cols == inputs && dgrad[dz].cols == outputs && dgrad[dx].cols == inputs &&
           is_aligned(dgrad[w]) && is_aligned(dgrad[dx]);
}

bool are_linked(const LayerChain& c) {
    namespace norm = layernorm_backward;
    namespace dense = dense_backward;
    namespace dgrad = linear_dgrad;
    namespace attention = attention_backward;
    const auto follows = [](const Bound& product, const Bound& layer) {
        return same_place(product[dgrad::dz], layer[dense::dz]);
    };
    return same_place(c.norm2[norm::dx], c.narrow[dense::dy]) && follows(c.narrow_product, c.narrow) &&
           same_place(c.narrow_product[dgrad::dx], c.widen[dense::dy]) && follows(c.widen_product, c.widen) &&
           same_place(c.widen_product[dgrad::dx], c.norm2[norm::dresidual]) &&
           same_place(c.widen_product[dgrad::dx], c.norm1[norm::dy]) && same_place(c.norm1[norm::dx], c.project[dense::dy]) &&
           follows(c.project_product, c.project) && same_abreast(c.attention[attention::dout], c.project_product[dgrad::dx]) &&
           same_abreast(c.attention[attention::dqkv], c.attend[dense::dy]) && follows(c.attend_product, c.attend) &&
           same_place(c.attend_product[dgrad::dx], c.norm1[norm::dresidual]);
}

/// What is written here for the first time is written, not added to; the residuals' gradients are added to.
bool accumulate_as_expected(const LayerChain& c) {
    using linear_dgrad::dx;
    return !c.norm2.accumulates(layernorm_backward::dresidual) && !c.narrow_product.accumulates(dx) &&
           c.widen_product.accumulates(dx) && !c.project_product.accumulates(dx) && c.attend_product.accumulates(dx);
}

bool attends(const LayerChain& c) {
    using namespace attention_backward;
    const auto& p = c.attention.params<AttentionParams>();
    const Operand &in = c.attention[qkv], &rows = c.attention[lengths];
    return p.heads == kLayerHeads && p.prefix == 0 && p.causal && in.cols == 3 * kLayerColumns && in.g == 1 &&
           in.k == (c.groups > 1 ? c.groups : c.members) && c.positions >= kLeastPositions && c.positions <= kMostPositions &&
           c.positions * rows.rows == in.rows && is_aligned(in) && is_aligned(c.attention[dqkv]) && is_aligned(c.attention[out]);
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
    return (inner.cols == kMostInner || inner.cols == kMostInner / 2) &&
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

LayerChain::LayerChain(std::span<const Bound> records)
    : r(records), members(norm2[layernorm_backward::x].k), groups(norm2[layernorm_backward::x].g) {
    const int sequences = attention[attention_backward::lengths].rows;
    if (sequences > 0) positions = attention[attention_backward::qkv].rows / sequences;
}

bool is_layer_chain(std::span<const Bound> records) {
    constexpr const OpDef* kOrder[LayerChain::kRecords] = {
        &layernorm_backward::kDef, &dense_backward::kDef,     &linear_dgrad::kDef,   &dense_backward::kDef,
        &linear_dgrad::kDef,       &layernorm_backward::kDef, &dense_backward::kDef, &linear_dgrad::kDef,
        &attention_backward::kDef, &dense_backward::kDef,     &linear_dgrad::kDef};
    if (records.size() < LayerChain::kRecords) return false;
    if (!std::equal(std::begin(kOrder), std::end(kOrder), records.begin(),
                    [](const OpDef* op, const Bound& b) { return b.record->op == op; }))
        return false;
    const LayerChain c(records);
    const Operand& dz = c.widen[dense_backward::dz];
    const int inner = dz.cols;
    if ((inner != kMostInner && inner != kMostInner / 2) || !is_aligned(dz) || !is_aligned(c.widen[dense_backward::saved]) ||
        !is_aligned(c.norm2[layernorm_backward::dy]))
        return false;
    return is_norm(c.norm2) && is_norm(c.norm1) && is_linear(c.narrow) && is_plain(c.widen, Activation::gelu) &&
           is_linear(c.project) && is_linear(c.attend) && !drops(c.widen) && !drops(c.attend) &&
           drop_alike(c.narrow, c.project, dense_backward::state) && is_product(c.narrow_product, kLayerColumns, inner) &&
           is_product(c.widen_product, inner, kLayerColumns) && is_product(c.project_product, kLayerColumns, kLayerColumns) &&
           is_product(c.attend_product, 3 * kLayerColumns, kLayerColumns) && attends(c) && are_linked(c) &&
           accumulate_as_expected(c);
}

Match match_layer_chain(const Window& window) {
    if (!is_layer_chain(window)) return {};
    constexpr std::size_t kNorm2 = 0, kNarrow = 2, kWiden = 4, kNorm1 = 5, kProject = 7, kAttention = 8;
    using linear_dgrad::dx;
    std::vector<Output> inner = {{kNarrow, dx}, {kWiden, dx}, {kProject, dx}, {kAttention, attention_backward::delta}};
    if (drops(LayerChain(window).narrow))  // of a norm's dx only what is left of it is stored, as dz
        inner.insert(inner.end(), {{kNorm2, layernorm_backward::dx}, {kNorm1, layernorm_backward::dx}});
    return Match::first(LayerChain::kRecords, std::move(inner));
}

MILLRACE_REWRITE(sequence_forward, dense_forward, 0);
MILLRACE_REWRITE(sequence_backward, layernorm_backward, 0);

}  // namespace millrace::ops
