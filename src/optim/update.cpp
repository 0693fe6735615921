#include "optim/update.h"

#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"
#include "tape/record.h"

namespace millrace::optim {

using tape::record_of;

void append_step_begin(tape::Builder& builder, std::uint32_t rank, std::uint32_t first) {
    const tape::Store& store = builder.store();
    builder.append(
        record_of(&ops::step_begin::kDef, ops::StepBeginParams{rank, first}, "step", {store.state(), store.group_table()}));
}

void set_loss_scale(tape::Precision precision, std::vector<ops::MemberState>& states, bool had_scale) {
    const bool scaled = scale_interval(precision) > 0;
    if (scaled && had_scale) return;
    for (ops::MemberState& state : states) {
        state.loss_scale = scaled ? kFirstLossScale : 1;
        state.good_steps = 0;
    }
}

void append_update(tape::Builder& builder, const OptimizerSettings& settings) {
    const tape::Store& store = builder.store();
    builder.append(
        record_of(&ops::grad_norm::kDef, ops::GradNormParams{}, "update",
                  {store.gradient_arena(), store.norm_scratch(), store.state(), store.group_table(), store.segments()}));
    const std::uint32_t interval =
        settings.scale_interval > 0 ? settings.scale_interval : scale_interval(store.options().precision);
    const ops::OptimizerParams params{settings.kind, interval, store.first_copied()};
    builder.append(record_of(&ops::optimizer::kDef, params, "update",
                             {store.parameter_arena(), store.gradient_arena(), store.first_moment(), store.second_moment(),
                              store.copy16(), store.state(), store.group_table(), store.segments()}));
    builder.append(record_of(&ops::metrics_push::kDef, ops::MetricsPushParams{store.options().ring_capacity}, "metrics",
                             {store.state(), store.ring_counter(), store.ring()}));
}

}  // namespace millrace::optim
