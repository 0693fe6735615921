#include "ops/gather/gather.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(gather_images)
MILLRACE_DECLARE_KERNELS(gather_rows)

namespace {

using enum Access;

constexpr SlotDef kGatherImages[] = {{"images"}, {"labels"}, {"subset"}, {"state"}, {"x", write}, {"y", write}};
static_assert(std::size(kGatherImages) == gather_images::slots);
constexpr SlotDef kGatherRows[] = {{"table"}, {"subset"}, {"state"}, {"out", write}};
static_assert(std::size(kGatherRows) == gather_rows::slots);

}  // namespace

const OpDef gather_images::kDef(
    {.name = "gather_images", .slots = kGatherImages, .phase = Phase::data, MILLRACE_KERNELS(gather_images)});
const OpDef gather_rows::kDef({.name = "gather_rows", .slots = kGatherRows, .phase = Phase::data, MILLRACE_KERNELS(gather_rows)});

}  // namespace millrace::ops
