#include "ops/attention/attention.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

/// Every position against every position of its sequence: what is masked is not known before a run, and counts.
std::int64_t products(const tensor::View& values, const tensor::View& lengths) {
    return lengths.rows == 0 ? 0 : product_flops(values, values.rows / lengths.rows);
}
std::int64_t forward_flops(const Record& r) {
    return 2 * products(r.slots[attention_forward::out], r.slots[attention_forward::lengths]);
}
/// Scores again, and the gradients of weights, values, queries and keys.
std::int64_t backward_flops(const Record& r) {
    return 5 * products(r.slots[attention_backward::dout], r.slots[attention_backward::lengths]);
}

}  // namespace

MILLRACE_OPERATOR_WITH(attention_forward, Phase::forward, forward_flops, {"qkv"}, {"lengths"}, {"logsumexp", write},
                       {"out", write});
MILLRACE_OPERATOR_WITH(attention_backward, Phase::backward, backward_flops, {"dout"}, {"qkv"}, {"lengths"}, {"logsumexp"},
                       {"out"}, {"delta", write}, {"dqkv", write});

}  // namespace millrace::ops
