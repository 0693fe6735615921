#include "ops/optimizer/optimizer.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(grad_norm)
MILLRACE_DECLARE_KERNELS(optimizer)
MILLRACE_DECLARE_REWRITE(fused_update)

namespace {

using enum Access;

constexpr SlotDef kGradNorm[] = {{"grads"}, {"scratch", write}, {"state", update}, {"groups"}, {"segments"}};
static_assert(std::size(kGradNorm) == grad_norm::slots);
constexpr SlotDef kOptimizer[] = {{"params", update}, {"grads", update}, {"m", update},      {"v", update},
                                  {"copy16", write},  {"state", update}, {"groups", update}, {"segments"}};
static_assert(std::size(kOptimizer) == optimizer::slots);
constexpr Rewrite kGradNormRewrites[] = {MILLRACE_REWRITE(fused_update)};

}  // namespace

const OpDef grad_norm::kDef({.name = "grad_norm",
                             .slots = kGradNorm,
                             .phase = Phase::optimizer,
                             MILLRACE_KERNELS(grad_norm),
                             .rewrites = kGradNormRewrites});
const OpDef optimizer::kDef({.name = "optimizer", .slots = kOptimizer, .phase = Phase::optimizer, MILLRACE_KERNELS(optimizer)});

}  // namespace millrace::ops
