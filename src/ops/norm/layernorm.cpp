#include "ops/norm/layernorm.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_REWRITE(sequence_backward)
constexpr Rewrite kLayerNormBackwardRewrites[] = {MILLRACE_REWRITE(sequence_backward)};

MILLRACE_OPERATOR(layernorm_forward, Phase::forward, {"x"}, {"residual"}, {"gamma"}, {"beta"}, {"mean", write},
                  {"inv_std", write}, {"sum", write}, {"y", write});
MILLRACE_OPERATOR_WITH(layernorm_backward, Phase::backward, nullptr, kLayerNormBackwardRewrites, {"dy"}, {"x"}, {"gamma"},
                       {"mean"}, {"inv_std"}, {"dx", add}, {"dresidual", add}, {"dgamma", add}, {"dbeta", add});

}  // namespace millrace::ops
