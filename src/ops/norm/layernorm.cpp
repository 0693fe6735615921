#include "ops/norm/layernorm.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(layernorm_forward, Phase::forward, {"x"}, {"residual"}, {"gamma"}, {"beta"}, {"mean", write},
                  {"inv_std", write}, {"sum", write}, {"y", write});
MILLRACE_OPERATOR(layernorm_backward, Phase::backward, {"dy"}, {"x"}, {"gamma"}, {"mean"}, {"inv_std"}, {"dx", add},
                  {"dresidual", add}, {"dgamma", add}, {"dbeta", add});

}  // namespace millrace::ops
