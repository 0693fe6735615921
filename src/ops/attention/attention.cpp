#include "ops/attention/attention.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(attention_forward)
MILLRACE_DECLARE_KERNELS(attention_backward)

namespace {

using enum Access;

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

constexpr SlotDef kAttentionForward[] = {{"qkv"}, {"lengths"}, {"level", write}, {"out", write}};
static_assert(std::size(kAttentionForward) == attention_forward::slots);
constexpr SlotDef kAttentionBackward[] = {{"dout"}, {"qkv"}, {"lengths"}, {"level"}, {"dqkv", write}};
static_assert(std::size(kAttentionBackward) == attention_backward::slots);

}  // namespace

const OpDef attention_forward::kDef({.name = "attention_forward",
                                     .slots = kAttentionForward,
                                     .phase = Phase::forward,
                                     .flops = forward_flops,
                                     MILLRACE_KERNELS(attention_forward)});
const OpDef attention_backward::kDef({.name = "attention_backward",
                                      .slots = kAttentionBackward,
                                      .phase = Phase::backward,
                                      .flops = backward_flops,
                                      MILLRACE_KERNELS(attention_backward)});

}  // namespace millrace::ops
