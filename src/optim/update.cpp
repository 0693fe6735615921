#include "optim/update.h"

#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"
#include "tape/record.h"

namespace millrace::optim {

using tape::record_of;

void append_step_begin(tape::Builder& builder, base::Rank rank) {
    const tape::Store& store = builder.store();
    builder.append(
        record_of(&ops::step_begin::kDef, ops::StepBeginParams{rank.rank}, "step", {store.state(), store.group_table()}));
}

void append_update(tape::Builder& builder, const OptimizerSettings& settings) {
    const tape::Store& store = builder.store();
    builder.append(
        record_of(&ops::grad_norm::kDef, ops::GradNormParams{}, "update",
                  {store.gradient_arena(), store.norm_scratch(), store.state(), store.group_table(), store.segments()}));
    builder.append(record_of(&ops::optimizer::kDef, ops::OptimizerParams{settings.kind, settings.accumulation > 1}, "update",
                             {store.parameter_arena(), store.gradient_arena(), store.first_moment(), store.second_moment(),
                              store.copy16(), store.state(), store.group_table(), store.segments()}));
    builder.append(record_of(&ops::metrics_push::kDef, ops::MetricsPushParams{store.options().ring_capacity}, "metrics",
                             {store.state(), store.ring_counter(), store.ring()}));
}

}  // namespace millrace::optim
