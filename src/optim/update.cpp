#include "optim/update.h"
#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"

namespace millrace::optim {

void append_step_begin(tape::Builder& builder) {
    ops::Record record{&ops::step_begin::kDef, ops::StepBeginParams{}, {}, 0, "step"};
    record.slots[ops::step_begin::state] = builder.store().state();
    record.slots[ops::step_begin::groups] = builder.store().group_table();
    builder.append(std::move(record));
}

void append_update(tape::Builder& builder, const OptimizerSettings& settings) {
    const tape::Store& store = builder.store();
    ops::Record norm{&ops::grad_norm::kDef, ops::GradNormParams{}, {}, 0, "update"};
    norm.slots[ops::grad_norm::grads] = store.gradient_arena();
    norm.slots[ops::grad_norm::scratch] = store.norm_scratch();
    norm.slots[ops::grad_norm::state] = store.state();
    norm.slots[ops::grad_norm::groups] = store.group_table();
    norm.slots[ops::grad_norm::segments] = store.segments();
    builder.append(std::move(norm));

    ops::Record update{&ops::optimizer::kDef, ops::OptimizerParams{settings.kind, settings.accumulation > 1}, {}, 0, "update"};
    update.slots[ops::optimizer::params] = store.parameter_arena();
    update.slots[ops::optimizer::grads] = store.gradient_arena();
    update.slots[ops::optimizer::m] = store.first_moment();
    update.slots[ops::optimizer::v] = store.second_moment();
    update.slots[ops::optimizer::copy16] = store.copy16();
    update.slots[ops::optimizer::state] = store.state();
    update.slots[ops::optimizer::groups] = store.group_table();
    update.slots[ops::optimizer::segments] = store.segments();
    builder.append(std::move(update));

    ops::Record push{&ops::metrics_push::kDef, ops::MetricsPushParams{store.options().ring_capacity}, {}, 0, "metrics"};
    push.slots[ops::metrics_push::state] = store.state();
    push.slots[ops::metrics_push::counter] = store.ring_counter();
    push.slots[ops::metrics_push::ring] = store.ring();
    builder.append(std::move(push));
}

}  // namespace millrace::optim
