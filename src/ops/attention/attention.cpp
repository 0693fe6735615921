#include "ops/attention/attention.h"

#include "ops/kernels.h"
#include "ops/text/sequence_rule.h"

namespace millrace::ops {
namespace {

/// Every position against every position of its sequence: what is masked is not known before a run, and counts.
std::int64_t products(const tensor::View& values, const tensor::View& lengths) {
    return lengths.rows == 0 ? 0 : product_flops(values, values.rows / lengths.rows);
}
std::int64_t attention_forward_flops(const Record& r) {
    return 2 * products(r.slots[attention_forward::out], r.slots[attention_forward::lengths]);
}
/// Scores again, and the gradients of weights, values, queries and keys.
std::int64_t attention_backward_flops(const Record& r) {
    return 5 * products(r.slots[attention_backward::dout], r.slots[attention_backward::lengths]);
}

/// What both directions have: queries, keys and values, numbers per head, values beside each other.
Checker& check_heads(Checker& c, int qkv, int lengths, std::initializer_list<int> per_head, std::initializer_list<int> values) {
    const auto& p = c.params<AttentionParams>();
    const auto [k, g, rows, cols] = c.shape(qkv);
    c.require({qkv}, Type::real, {k, 1, rows, cols}).require(values, Type::real, {k, 1, rows, cols / 3});
    c.require(per_head, Type::stat, {k, 1, rows, p.heads});
    c.that(p.heads > 0 && cols > 0 && cols % (3 * p.heads) == 0, "qkv needs three times as many columns as whole heads");
    return check_positions(c, qkv, lengths, p.prefix).that(p.prefix >= 0, "the prefix is below 0");
}

}  // namespace

MILLRACE_OPERATOR_WITH(attention_forward, Phase::forward, attention_forward_flops, {"qkv"}, {"lengths"}, {"logsumexp", write},
                       {"out", write});
MILLRACE_OPERATOR_WITH(attention_backward, Phase::backward, attention_backward_flops, {"dout"}, {"qkv"}, {"lengths"},
                       {"logsumexp"}, {"out"}, {"delta", write}, {"dqkv", write});

void attention_forward::check(Checker& c) { check_heads(c, qkv, lengths, {logsumexp}, {out}); }
void attention_backward::check(Checker& c) {
    check_heads(c, qkv, lengths, {logsumexp, delta}, {out, dout}).require({dqkv}, real, c.shape(qkv));
}

}  // namespace millrace::ops
