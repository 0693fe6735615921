#include "ops/optimizer/optimizer.h"

#include "ops/dense/dense.h"
#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(grad_norm, Phase::optimizer, {"grads"}, {"scratch", write}, {"state", update}, {"groups"}, {"segments"});
MILLRACE_OPERATOR(optimizer, Phase::optimizer, {"params", update}, {"grads", update}, {"m", update}, {"v", update},
                  {"copy16", write}, {"state", update}, {"groups", update}, {"segments"});

MILLRACE_REWRITE(wgrad_update, linear_wgrad, 1);
MILLRACE_REWRITE(fused_update, grad_norm, 0);

}  // namespace millrace::ops
