#include "ops/dense/dense.h"

#include <optional>

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR_WITH(dense_forward, Phase::forward,
                       [](const Record& r) { return product_flops(r.slots[dense_forward::y], r.slots[dense_forward::x].cols); },
                       {"x"}, {"w"}, {"bias"}, {"gamma"}, {"beta"}, {"running_mean", update}, {"running_var", update},
                       {"saved", write}, {"inv_std", write}, {"state"}, {"y", write});
MILLRACE_OPERATOR(dense_backward, Phase::backward, {"dy"}, {"saved"}, {"gamma"}, {"beta"}, {"inv_std"}, {"state"}, {"dz", write},
                  {"dgamma", add}, {"dbeta", add}, {"dbias", add});
MILLRACE_OPERATOR_WITH(linear_dgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_dgrad::w], r.slots[linear_dgrad::dz].rows); },
                       {"dz"}, {"w"}, {"dx", add});
MILLRACE_OPERATOR_WITH(linear_wgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_wgrad::dw], r.slots[linear_wgrad::dz].rows); },
                       {"dz"}, {"x"}, {"dw", add}, {"dbias", add});
MILLRACE_OPERATOR(batch_moments, Phase::forward, {"z"}, {"moments", write});
MILLRACE_OPERATOR(batch_apply, Phase::forward, {"z"}, {"moments"}, {"bias"}, {"gamma"}, {"beta"}, {"running_mean", update},
                  {"running_var", update}, {"saved", write}, {"inv_std", write}, {"state"}, {"y", write});
MILLRACE_OPERATOR(batch_moments_backward, Phase::backward, {"dy"}, {"saved"}, {"gamma"}, {"beta"}, {"sums", write}, {"state"});
MILLRACE_OPERATOR(batch_apply_backward, Phase::backward, {"dy"}, {"saved"}, {"gamma"}, {"beta"}, {"inv_std"}, {"state"},
                  {"dz", write}, {"dgamma", add}, {"dbeta", add}, {"sums"});
MILLRACE_OPERATOR(column_sum, Phase::backward, {"in"}, {"out", add}, {"second", add}, {"third", add});

MILLRACE_REWRITE(backward_pair, linear_dgrad, 0);
MILLRACE_REWRITE(grouped_wgrad, linear_wgrad, 0);

namespace cuda {
Match match_wgrad_bias(const Context& context, const Window& records);
}
/// Sums for biases move to the weight gradients, which read the same rows.
static const Rewrite kWgradBias({.name = "wgrad_bias", .priority = 1, .cuda = MILLRACE_CUDA_FUNCTION(match_wgrad_bias)});

void dense_forward::check(Checker& c) {
    const auto& p = c.params<DenseParams>();
    const auto [k, g, out, in] = c.shape(w);
    const int rows = c.shape(x).rows;
    c.require({x}, real, {k, g, rows, in}).require({w}, real, {k, g, out, in});
    const bool is_product = p.norm == Norm::none && p.activation == Activation::none && p.dropout == 0 && !c[saved].present();
    c.require({y}, is_product ? floating : real, {k, g, rows, out})
        .allow({saved}, real, {k, g, rows, out})
        .dropout(p.dropout, state, k);
    c.allow({bias, gamma, beta, running_mean, running_var, inv_std}, stat, {k, g, 1, out});
    c.needs({gamma, beta, running_mean, running_var}, p.norm != Norm::none);
    c.needs({inv_std, saved}, p.norm == Norm::batch_train);
}

void dense_backward::check(Checker& c) {
    const auto& p = c.params<DenseParams>();
    const auto [k, g, rows, cols] = c.shape(dz);
    c.require({dz, dy}, real, {k, g, rows, cols}).allow({saved}, real, {k, g, rows, cols}).dropout(p.dropout, state, k);
    c.allow({gamma, beta, inv_std, dgamma, dbeta, dbias}, stat, {k, g, 1, cols});
    c.needs({gamma, beta, inv_std}, p.norm == Norm::batch_train);
    c.needs({saved}, p.norm != Norm::none || p.activation != Activation::none);
    c.that(p.norm != Norm::batch_eval, "a norm with running statistics has no backward pass");
}

void linear_dgrad::check(Checker& c) {
    const auto [k, g, out, in] = c.shape(w);
    const int rows = c.shape(dz).rows, cols = c.shape(dx).cols;
    c.require({w}, real, {k, g, out, in}).require({dz}, real, {k, g, rows, out}).require({dx}, floating, {k, g, rows, cols});
    c.that(cols >= in, "dx has fewer columns than w");
}

void linear_wgrad::check(Checker& c) {
    const auto [k, g, out, in] = c.shape(dw);
    const int rows = c.shape(dz).rows, cols = c.shape(x).cols;
    c.require({dz}, real, {k, g, rows, out}).require({x}, real, {k, g, rows, cols}).require({dw}, stat, {k, g, out, in});
    c.allow({dbias}, stat, {k, g, 1, out});
    c.that(cols >= in, "x has fewer columns than dw");
}

void column_sum::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(in);
    const auto& p = c.params<ColumnSumParams>();
    for (const int slot : {out, second, third}) {
        const int first = p.from[slot - out], count = c.shape(slot).cols;
        c.allow({slot}, stat, {k, g, 1, count}).that(first >= 0 && first + count <= cols, "in has fewer columns than are summed");
    }
    c.require({in}, floating, {k, g, rows, cols}).needs({out});
}

void batch_moments::check(Checker& c) {
    (void)c.params<BatchMomentsParams>();
    const auto [k, g, rows, cols] = c.shape(z);
    c.require({z}, stat, {k, g, rows, cols}).require({moments}, stat, {k, g, moment_chunks(rows), 2 * cols});
}

/// What the other three share: matrices as the first of `rows` is, vectors, moments, dropout.
static void check_batch(Checker& c, std::initializer_list<int> rows, std::initializer_list<int> vectors, int moments, int state) {
    const auto& p = c.params<DenseParams>();
    const auto [k, g, count, cols] = c.shape(*rows.begin());
    c.require(rows, Type::real, {k, g, count, cols}).require(vectors, Type::stat, {k, g, 1, cols});
    c.require({moments}, Type::stat, {k, g, moment_chunks(count), 2 * cols}).dropout(p.dropout, state, k);
    c.that(p.norm == Norm::batch_train, "the norm is another one");
}

void batch_apply::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    check_batch(c, {y, saved}, {gamma, beta, running_mean, running_var, inv_std}, moments, state);
    c.require({z}, stat, {k, g, rows, cols}).allow({bias}, stat, {k, g, 1, cols});
}

void batch_moments_backward::check(Checker& c) { check_batch(c, {dy, saved}, {gamma, beta}, sums, state); }

void batch_apply_backward::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(dy);
    check_batch(c, {dy, saved, dz}, {gamma, beta, inv_std}, sums, state);
    c.allow({dgamma, dbeta}, stat, {k, g, 1, cols});
}

// Slots keep their numbers when records are joined, and kernels of the joined record read those of the others.
static_assert(int{batch_apply::bias} == dense_forward::bias && int{batch_apply::y} == dense_forward::y);
static_assert(int{batch_moments_backward::state} == dense_backward::state);
static_assert(int{batch_apply_backward::dz} == dense_backward::dz && int{batch_apply_backward::sums} == dense_backward::dbias);

static const tensor::View& view_of(const Bound& bound, int slot) { return bound.record->slots[static_cast<std::size_t>(slot)]; }

/// A product, batch_moments and batch_apply as one record.
static std::optional<Record> joined_forward(const Bound& product, const Bound& moments, const Bound& apply) {
    using namespace dense_forward;
    const auto& p = product.params<DenseParams>();
    const bool bare = p.norm == Norm::none && p.activation == Activation::none && p.dropout == 0 && !product[bias].present();
    const tensor::View& z = view_of(product, y);
    if (!bare || view_of(moments, batch_moments::z) != z || view_of(apply, batch_apply::z) != z ||
        view_of(moments, batch_moments::moments) != view_of(apply, batch_apply::moments) ||
        Box(product[x]).meets(Box(apply[saved])) || Box(product[x]).meets(Box(apply[y])))
        return std::nullopt;
    Record joined = *apply.record;
    joined.op = &kDef;
    joined.slots[x] = view_of(product, x);
    joined.slots[w] = view_of(product, w);
    return joined;
}

/// batch_moments_backward and batch_apply_backward as one record.
static std::optional<Record> joined_backward(const Bound& moments, const Bound& apply) {
    using namespace dense_backward;
    bool same = moments.params<DenseParams>() == apply.params<DenseParams>() &&
                view_of(moments, batch_moments_backward::sums) == view_of(apply, batch_apply_backward::sums);
    for (const int slot : {dy, saved, gamma, beta, state}) same = same && view_of(moments, slot) == view_of(apply, slot);
    if (!same) return std::nullopt;
    Record joined = *apply.record;
    joined.op = &kDef;
    joined.slots[batch_apply_backward::sums] = {};
    return joined;
}

/// Neighbours that nothing else reads from become the record that does it all.
static Match match_batch_statistics(const Window& records) {
    const auto is = [&](std::size_t record, const OpDef& op) {
        return record < records.size() && records[record].record->op == &op;
    };
    std::optional<Record> joined;
    std::vector<Output> inner;
    if (is(0, dense_forward::kDef) && is(1, batch_moments::kDef) && is(2, batch_apply::kDef)) {
        joined = joined_forward(records[0], records[1], records[2]);
        inner = {{0, dense_forward::y}, {1, batch_moments::moments}};
    } else if (is(0, batch_moments_backward::kDef) && is(1, batch_apply_backward::kDef)) {
        joined = joined_backward(records[0], records[1]);
        inner = {{0, batch_moments_backward::sums}};
    }
    if (!joined || !check_record(*joined).ok()) return {};
    Match match = Match::first(inner.size() + 1, inner);
    if (!place(match, records).possible) return {};
    match.instead.resize(match.count());
    match.instead.back() = std::move(joined);
    return match;
}
static const Rewrite kBatchStatistics({.name = "batch_statistics",
                                       .before_others = true,
                                       .cpu = [](const cpu::Context&, const Window& r) { return match_batch_statistics(r); },
                                       .cuda = [](const cuda::Context&, const Window& r) { return match_batch_statistics(r); }});

}  // namespace millrace::ops
