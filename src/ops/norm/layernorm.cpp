#include "ops/norm/layernorm.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(layernorm_forward, Phase::forward, {"x"}, {"residual"}, {"gamma"}, {"beta"}, {"mean", write},
                  {"inv_std", write}, {"sum", write}, {"y", write});
MILLRACE_OPERATOR(layernorm_backward, Phase::backward, {"dy"}, {"x"}, {"gamma"}, {"mean"}, {"inv_std"}, {"dx", add},
                  {"dresidual", add}, {"dgamma", add}, {"dbeta", add});

MILLRACE_REWRITE(norms_forward, layernorm_forward, 0);
MILLRACE_REWRITE(norms_backward, layernorm_backward, 0);

void layernorm_forward::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(y);
    c.require({x, y}, real, c.shape(y)).allow({residual, sum}, real, c.shape(y));
    c.needs({sum}, c[residual].present()).needs({residual}, c[sum].present());
    c.require({gamma, beta}, stat, {k, g, 1, cols}).require({mean, inv_std}, stat, {k, g, rows, 1}).params<LayerNormParams>();
}

void layernorm_backward::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(x);
    c.require({x, dy}, real, c.shape(x)).allow({dx, dresidual}, real, c.shape(x));
    c.require({gamma}, stat, {k, g, 1, cols}).allow({dgamma, dbeta}, stat, {k, g, 1, cols});
    c.require({mean, inv_std}, stat, {k, g, rows, 1});
}

}  // namespace millrace::ops
