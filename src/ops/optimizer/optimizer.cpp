#include "ops/optimizer/optimizer.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_REWRITE(fused_update)
constexpr Rewrite kGradNormRewrites[] = {MILLRACE_REWRITE(fused_update)};

MILLRACE_OPERATOR_WITH(grad_norm, Phase::optimizer, nullptr, kGradNormRewrites, {"grads"}, {"scratch", write}, {"state", update},
                       {"groups"}, {"segments"});
MILLRACE_OPERATOR(optimizer, Phase::optimizer, {"params", update}, {"grads", update}, {"m", update}, {"v", update},
                  {"copy16", write}, {"state", update}, {"groups", update}, {"segments"});

}  // namespace millrace::ops
