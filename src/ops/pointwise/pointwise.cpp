#include "ops/pointwise/pointwise.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(fill)
MILLRACE_DECLARE_KERNELS(copy)
MILLRACE_DECLARE_KERNELS(add)
MILLRACE_DECLARE_KERNELS(pointwise_forward)
MILLRACE_DECLARE_KERNELS(pointwise_backward)
MILLRACE_DECLARE_REWRITE(fills)

namespace {

using enum Access;

constexpr SlotDef kFill[] = {{"out", write}};
static_assert(std::size(kFill) == fill::slots);
constexpr SlotDef kCopy[] = {{"in"}, {"out", write}};
static_assert(std::size(kCopy) == copy::slots);
constexpr SlotDef kAdd[] = {{"a"}, {"b"}, {"out", add}};
static_assert(std::size(kAdd) == add::slots);
constexpr SlotDef kPointwiseForward[] = {{"x"}, {"state"}, {"y", write}};
static_assert(std::size(kPointwiseForward) == pointwise_forward::slots);
constexpr SlotDef kPointwiseBackward[] = {{"dy"}, {"x"}, {"state"}, {"dx", add}};
static_assert(std::size(kPointwiseBackward) == pointwise_backward::slots);
constexpr Rewrite kFillRewrites[] = {MILLRACE_REWRITE(fills)};

}  // namespace

const OpDef fill::kDef({.name = "fill", .slots = kFill, MILLRACE_KERNELS(fill), .rewrites = kFillRewrites});
const OpDef copy::kDef({.name = "copy", .slots = kCopy, MILLRACE_KERNELS(copy)});
const OpDef add::kDef({.name = "add", .slots = kAdd, MILLRACE_KERNELS(add)});
const OpDef pointwise_forward::kDef(
    {.name = "pointwise_forward", .slots = kPointwiseForward, .phase = Phase::forward, MILLRACE_KERNELS(pointwise_forward)});
const OpDef pointwise_backward::kDef(
    {.name = "pointwise_backward", .slots = kPointwiseBackward, .phase = Phase::backward, MILLRACE_KERNELS(pointwise_backward)});

}  // namespace millrace::ops
