#include "ops/norm/layernorm.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(layernorm_forward)
MILLRACE_DECLARE_KERNELS(layernorm_backward)

namespace {

using enum Access;

constexpr SlotDef kLayernormForward[] = {{"x"}, {"gamma"}, {"beta"}, {"mean", write}, {"inv_std", write}, {"y", write}};
static_assert(std::size(kLayernormForward) == layernorm_forward::slots);
constexpr SlotDef kLayernormBackward[] = {{"dy"},      {"x"},       {"gamma"},       {"mean"},
                                          {"inv_std"}, {"dx", add}, {"dgamma", add}, {"dbeta", add}};
static_assert(std::size(kLayernormBackward) == layernorm_backward::slots);

}  // namespace

const OpDef layernorm_forward::kDef(
    {.name = "layernorm_forward", .slots = kLayernormForward, .phase = Phase::forward, MILLRACE_KERNELS(layernorm_forward)});
const OpDef layernorm_backward::kDef(
    {.name = "layernorm_backward", .slots = kLayernormBackward, .phase = Phase::backward, MILLRACE_KERNELS(layernorm_backward)});

}  // namespace millrace::ops
