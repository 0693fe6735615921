#include "ops/optimizer/optimizer.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(grad_norm)
MILLRACE_DECLARE_KERNELS(optimizer)

namespace {

using enum Access;

constexpr SlotDef kGradNorm[] = {{"grads"}, {"scratch", write}, {"state", update}};
static_assert(std::size(kGradNorm) == grad_norm::slots);
constexpr SlotDef kOptimizer[] = {{"params", update}, {"grads", update}, {"m", update},
                                  {"v", update},      {"copy16", write}, {"state", update}};
static_assert(std::size(kOptimizer) == optimizer::slots);

}  // namespace

const OpDef grad_norm::def({.name = "grad_norm", .slots = kGradNorm, .phase = Phase::optimizer, MILLRACE_KERNELS(grad_norm)});
const OpDef optimizer::def({.name = "optimizer", .slots = kOptimizer, .phase = Phase::optimizer, MILLRACE_KERNELS(optimizer)});

}  // namespace millrace::ops
