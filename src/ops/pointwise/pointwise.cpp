#include "ops/pointwise/pointwise.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(fill, {}, {"out", write});
MILLRACE_OPERATOR(copy, {}, {"in"}, {"out", write});
MILLRACE_OPERATOR(add, {}, {"a"}, {"b"}, {"out", add});
MILLRACE_OPERATOR(pointwise_forward, Phase::forward, {"x"}, {"state"}, {"y", write});
MILLRACE_OPERATOR(pointwise_backward, Phase::backward, {"dy"}, {"x"}, {"state"}, {"dx", add});

void fill::check(Checker& c) { c.require({out}, number, c.shape(out)).params<FillParams>(); }
void copy::check(Checker& c) { c.require({in, out}, number, c.shape(out)); }
void add::check(Checker& c) { c.require({a, out}, real, c.shape(out)).allow({b}, real, c.shape(out)); }
void pointwise_forward::check(Checker& c) {
    c.require({x, y}, real, c.shape(y)).dropout(c.params<PointwiseParams>().dropout, state, c.shape(y).k);
}
void pointwise_backward::check(Checker& c) {
    c.require({dy, x, dx}, real, c.shape(dx)).dropout(c.params<PointwiseParams>().dropout, state, c.shape(dx).k);
}
MILLRACE_REWRITE(fills, fill, 0);

}  // namespace millrace::ops
