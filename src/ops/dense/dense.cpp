#include "ops/dense/dense.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_REWRITE(heads_forward)
MILLRACE_DECLARE_REWRITE(sequence_forward)
MILLRACE_DECLARE_REWRITE(heads_backward)
MILLRACE_DECLARE_REWRITE(backward_pair)
MILLRACE_DECLARE_REWRITE(wgrad_update)
MILLRACE_DECLARE_REWRITE(grouped_wgrad)
MILLRACE_DECLARE_REWRITE(column_sums)
constexpr Rewrite kDenseForwardRewrites[] = {MILLRACE_REWRITE(heads_forward), MILLRACE_REWRITE(sequence_forward)};
constexpr Rewrite kLinearDgradRewrites[] = {MILLRACE_REWRITE(heads_backward), MILLRACE_REWRITE(backward_pair)};
constexpr Rewrite kLinearWgradRewrites[] = {MILLRACE_REWRITE(wgrad_update), MILLRACE_REWRITE(grouped_wgrad)};
constexpr Rewrite kColumnSumRewrites[] = {MILLRACE_REWRITE(column_sums)};

MILLRACE_OPERATOR_WITH(dense_forward, Phase::forward,
                       [](const Record& r) { return product_flops(r.slots[dense_forward::y], r.slots[dense_forward::x].cols); },
                       kDenseForwardRewrites, {"x"}, {"w"}, {"bias"}, {"gamma"}, {"beta"}, {"running_mean", update},
                       {"running_var", update}, {"saved", write}, {"inv_std", write}, {"state"}, {"y", write});
MILLRACE_OPERATOR(dense_backward, Phase::backward, {"dy"}, {"saved"}, {"gamma"}, {"beta"}, {"inv_std"}, {"state"}, {"dz", write},
                  {"dgamma", add}, {"dbeta", add}, {"dbias", add});
MILLRACE_OPERATOR_WITH(linear_dgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_dgrad::w], r.slots[linear_dgrad::dz].rows); },
                       kLinearDgradRewrites, {"dz"}, {"w"}, {"dx", add});
MILLRACE_OPERATOR_WITH(linear_wgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_wgrad::dw], r.slots[linear_wgrad::dz].rows); },
                       kLinearWgradRewrites, {"dz"}, {"x"}, {"dw", add});
MILLRACE_OPERATOR_WITH(column_sum, Phase::backward, nullptr, kColumnSumRewrites, {"in"}, {"out", add});

}  // namespace millrace::ops
