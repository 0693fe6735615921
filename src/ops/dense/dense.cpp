#include "ops/dense/dense.h"

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

}  // namespace millrace::ops
