#include "ops/dense/dense.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR_WITH(dense_forward, Phase::forward,
                       [](const Record& r) { return product_flops(r.slots[dense_forward::y], r.slots[dense_forward::x].cols); },
                       {"x"}, {"w"}, {"bias"}, {"gamma"}, {"beta"}, {"running_mean", update}, {"running_var", update},
                       {"saved", write}, {"inv_std", write}, {"state"}, {"y", write});
MILLRACE_OPERATOR(dense_backward, Phase::backward, {"dy"}, {"saved"}, {"gamma"}, {"beta"}, {"inv_std"}, {"state"}, {"dz", write},
                  {"dgamma", add}, {"dbeta", add}, {"dbias", add});
MILLRACE_OPERATOR_WITH(linear_dgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_dgrad::w], r.slots[linear_dgrad::dz].rows); },
                       {"dz"}, {"w"}, {"dx", add});
MILLRACE_OPERATOR_WITH(linear_wgrad, Phase::backward,
                       [](const Record& r) { return product_flops(r.slots[linear_wgrad::dw], r.slots[linear_wgrad::dz].rows); },
                       {"dz"}, {"x"}, {"dw", add});
MILLRACE_OPERATOR(column_sum, Phase::backward, {"in"}, {"out", add});

MILLRACE_REWRITE(heads_forward, dense_forward, 1);
MILLRACE_REWRITE(heads_backward, linear_dgrad, 1);
MILLRACE_REWRITE(backward_pair, linear_dgrad, 0);
MILLRACE_REWRITE(grouped_wgrad, linear_wgrad, 0);
MILLRACE_REWRITE(split_wgrad, linear_wgrad, 0);
MILLRACE_REWRITE(column_sums, column_sum, 0);

}  // namespace millrace::ops
