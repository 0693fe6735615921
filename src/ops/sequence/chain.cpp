#include "ops/sequence/chain.h"

#include <algorithm>
#include <iterator>

namespace millrace::ops {
namespace {

using tensor::Operand;

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

LayerChain::LayerChain(std::span<const Bound> r)
    : norm2(r[0]),
      narrow(r[1]),
      narrow_product(r[2]),
      widen(r[3]),
      widen_product(r[4]),
      norm1(r[5]),
      project(r[6]),
      project_product(r[7]),
      attention(r[8]),
      attend(r[9]),
      attend_product(r[10]),
      members(norm2[layernorm_backward::x].k),
      groups(norm2[layernorm_backward::x].g),
      positions(0) {
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

}  // namespace millrace::ops
