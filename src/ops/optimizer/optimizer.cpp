#include "ops/optimizer/optimizer.h"

#include "ops/dense/dense.h"
#include "ops/kernels.h"
#include "ops/step/step.h"

namespace millrace::ops {

MILLRACE_OPERATOR(grad_norm, Phase::optimizer, {"grads"}, {"scratch", write}, {"state", update}, {"groups"}, {"segments"});
MILLRACE_OPERATOR(optimizer, Phase::optimizer, {"params", update}, {"grads"}, {"m", update}, {"v", update}, {"copy16", write},
                  {"state", update}, {"groups", update}, {"segments"});

void grad_norm::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(grads);
    c.require({grads}, stat, {k, 1, 1, cols}).require({scratch}, stat, {k, 1, 1, kNormBlocks});
    c.state(state, k).groups(groups, k).segments(segments);
}

void optimizer::check(Checker& c) {
    const auto& p = c.params<OptimizerParams>();
    const auto [k, g, rows, cols] = c.shape(params);
    c.require({params, grads}, stat, {k, 1, 1, cols}).allow({m, v}, stat, {k, 1, 1, cols}).allow({copy16}, half, {k, 1, 1, cols});
    c.needs({m, v}, p.kind != OptimizerKind::sgd).state(state, k).groups(groups, k).segments(segments);
    c.that(p.first_copied >= 0 && p.first_copied % 4 == 0, "first_copied must be a multiple of 4");
}
MILLRACE_REWRITE(wgrad_update, linear_wgrad, 1);
MILLRACE_REWRITE(fused_update, grad_norm, 0);
/// The same of a step whose last micro-batch ends in front of it.
static const Rewrite kClosingUpdate({.name = "fused_update",
                                     .fused = &fused_update_rewrite::kDef,
                                     .begins = &micro_end::kDef,
                                     .cuda = MILLRACE_CUDA_FUNCTION(match_fused_update)});

}  // namespace millrace::ops
