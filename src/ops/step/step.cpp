#include "ops/step/step.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(step_begin)
MILLRACE_DECLARE_KERNELS(micro_end)
MILLRACE_DECLARE_KERNELS(metrics_push)

namespace {

using enum Access;

constexpr SlotDef kStepBegin[] = {{"state", update}, {"groups", update}};
static_assert(std::size(kStepBegin) == step_begin::slots);
constexpr SlotDef kMicroEnd[] = {{"state", update}};
static_assert(std::size(kMicroEnd) == micro_end::slots);
constexpr SlotDef kMetricsPush[] = {{"state"}, {"counter", update}, {"ring", write}};
static_assert(std::size(kMetricsPush) == metrics_push::slots);

}  // namespace

const OpDef step_begin::kDef({.name = "step_begin", .slots = kStepBegin, .phase = Phase::data, MILLRACE_KERNELS(step_begin)});
const OpDef micro_end::kDef({.name = "micro_end", .slots = kMicroEnd, .phase = Phase::optimizer, MILLRACE_KERNELS(micro_end)});
const OpDef metrics_push::kDef(
    {.name = "metrics_push", .slots = kMetricsPush, .phase = Phase::optimizer, MILLRACE_KERNELS(metrics_push)});

}  // namespace millrace::ops
