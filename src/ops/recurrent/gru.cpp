#include "ops/recurrent/gru.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

std::int64_t gru_forward_flops(const Record& r) {
    namespace at = gru_forward;
    return product_flops(r.slots[at::out], 3 * (r.slots[at::w_ih].cols + r.slots[at::w_hh].cols));
}
std::int64_t gru_backward_flops(const Record& r) {
    namespace at = gru_backward;
    std::int64_t sum = 0;
    for (std::size_t a = at::a0; a <= at::a3 && r.slots[a].present(); a += 2)
        sum += product_flops(r.slots[at::dh], r.slots[a].cols);
    return sum;
}

}  // namespace

MILLRACE_OPERATOR_WITH(gru_forward, Phase::forward, gru_forward_flops, {"x"}, {"h"}, {"mask"}, {"flag"}, {"w_ih"}, {"w_hh"},
                       {"b_ih"}, {"b_hh"}, {"scratch", write}, {"gates", write}, {"out", write});
MILLRACE_OPERATOR_WITH(gru_backward, Phase::backward, gru_backward_flops, {"dh", update}, {"gates"}, {"h"}, {"mask"}, {"flag"},
                       {"a0"}, {"w0"}, {"a1"}, {"w1"}, {"a2"}, {"w2"}, {"a3"}, {"w3"}, {"dgates", write});

void gru_forward::check(Checker& c) {
    const auto [k, g, n, hidden] = c.shape(h);
    const int in = c.shape(w_ih).cols, cols = c.shape(x).cols;
    c.require({h, out}, real, {k, 1, n, hidden}).require({x}, real, {k, 1, n, cols}).allow({gates}, real, {k, 1, n, 4 * hidden});
    c.require({w_ih}, real, {k, 1, 3 * hidden, in}).require({w_hh}, real, {k, 1, 3 * hidden, hidden});
    c.require({b_ih, b_hh}, stat, {k, 1, 1, 3 * hidden}).require({scratch}, stat, {k, 1, n, 6 * hidden});
    c.allow({mask}, stat, {k, 1, n, 1}).allow({flag}, i32, {k, 1, 1, 1}).that(cols >= in, "x has fewer columns than w_ih");
    c.that(c[out].buffer != c[h].buffer || c[out].offset != c[h].offset || n == 0, "out must not be the memory of h");
}

void gru_backward::check(Checker& c) {
    const auto [k, g, n, hidden] = c.shape(h);
    c.require({h}, real, {k, 1, n, hidden}).require({gates, dgates}, real, {k, 1, n, 4 * hidden});
    c.require({dh}, stat, {k, 1, n, hidden})
        .allow({mask}, stat, {k, 1, n, 1})
        .allow({flag}, i32, {k, 1, 1, 1})
        .params<GruBackwardParams>();
    for (int a = a0, w = w0; a <= a3; a += 2, w += 2) {
        const int cols = c.shape(a).cols;
        c.allow({a}, real, {k, 1, n, cols}).allow({w}, real, {k, 1, cols, hidden});
        c.needs({a}, c[w].present()).needs({w}, c[a].present());
        if (a > a0) c.needs({a - 2}, c[a].present());  // pairs fill up from 0
    }
}

}  // namespace millrace::ops
