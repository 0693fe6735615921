#include "ops/dense/dense.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(dense_forward)
MILLRACE_DECLARE_KERNELS(dense_backward)
MILLRACE_DECLARE_KERNELS(linear_dgrad)
MILLRACE_DECLARE_KERNELS(linear_wgrad)
MILLRACE_DECLARE_KERNELS(column_sum)
MILLRACE_DECLARE_REWRITE(heads_forward)
MILLRACE_DECLARE_REWRITE(heads_backward)
MILLRACE_DECLARE_REWRITE(backward_pair)
MILLRACE_DECLARE_REWRITE(grouped_wgrad)
MILLRACE_DECLARE_REWRITE(column_sums)

namespace {

using enum Access;

constexpr SlotDef kDenseForward[] = {{"x"},
                                     {"w"},
                                     {"bias"},
                                     {"gamma"},
                                     {"beta"},
                                     {"running_mean", update},
                                     {"running_var", update},
                                     {"saved", write},
                                     {"inv_std", write},
                                     {"state"},
                                     {"y", write}};
static_assert(std::size(kDenseForward) == dense_forward::slots);
constexpr SlotDef kDenseBackward[] = {{"dy"},    {"saved"},     {"gamma"},       {"beta"},       {"inv_std"},
                                      {"state"}, {"dz", write}, {"dgamma", add}, {"dbeta", add}, {"dbias", add}};
static_assert(std::size(kDenseBackward) == dense_backward::slots);
constexpr SlotDef kLinearDgrad[] = {{"dz"}, {"w"}, {"dx", add}};
static_assert(std::size(kLinearDgrad) == linear_dgrad::slots);
constexpr SlotDef kLinearWgrad[] = {{"dz"}, {"x"}, {"dw", add}};
static_assert(std::size(kLinearWgrad) == linear_wgrad::slots);
constexpr SlotDef kColumnSum[] = {{"in"}, {"out", add}};
static_assert(std::size(kColumnSum) == column_sum::slots);
constexpr Rewrite kDenseForwardRewrites[] = {MILLRACE_REWRITE(heads_forward)};
constexpr Rewrite kLinearDgradRewrites[] = {MILLRACE_REWRITE(heads_backward), MILLRACE_REWRITE(backward_pair)};
constexpr Rewrite kLinearWgradRewrites[] = {MILLRACE_REWRITE(grouped_wgrad)};
constexpr Rewrite kColumnSumRewrites[] = {MILLRACE_REWRITE(column_sums)};

}  // namespace

const OpDef dense_forward::kDef(
    {.name = "dense_forward",
     .slots = kDenseForward,
     .phase = Phase::forward,
     .flops = [](const Record& r) { return product_flops(r.slots[dense_forward::y], r.slots[dense_forward::x].cols); },
     MILLRACE_KERNELS(dense_forward),
     .rewrites = kDenseForwardRewrites});
const OpDef dense_backward::kDef(
    {.name = "dense_backward", .slots = kDenseBackward, .phase = Phase::backward, MILLRACE_KERNELS(dense_backward)});
const OpDef linear_dgrad::kDef(
    {.name = "linear_dgrad",
     .slots = kLinearDgrad,
     .phase = Phase::backward,
     .flops = [](const Record& r) { return product_flops(r.slots[linear_dgrad::w], r.slots[linear_dgrad::dz].rows); },
     MILLRACE_KERNELS(linear_dgrad),
     .rewrites = kLinearDgradRewrites});
const OpDef linear_wgrad::kDef(
    {.name = "linear_wgrad",
     .slots = kLinearWgrad,
     .phase = Phase::backward,
     .flops = [](const Record& r) { return product_flops(r.slots[linear_wgrad::dw], r.slots[linear_wgrad::dz].rows); },
     MILLRACE_KERNELS(linear_wgrad),
     .rewrites = kLinearWgradRewrites});
const OpDef column_sum::kDef({.name = "column_sum",
                              .slots = kColumnSum,
                              .phase = Phase::backward,
                              MILLRACE_KERNELS(column_sum),
                              .rewrites = kColumnSumRewrites});

}  // namespace millrace::ops
