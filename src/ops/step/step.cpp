#include "ops/step/step.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(step_begin, Phase::data, {"state", update}, {"groups", update});
MILLRACE_OPERATOR(micro_end, Phase::optimizer, {"state", update});
MILLRACE_OPERATOR(metrics_push, Phase::optimizer, {"state"}, {"counter", update}, {"ring", write});

void step_begin::check(Checker& c) {
    c.state(state, c.shape(state).k).groups(groups, c.shape(state).k).params<StepBeginParams>();
}
void micro_end::check(Checker& c) { c.state(state, c.shape(state).k).params<MicroEndParams>(); }
void metrics_push::check(Checker& c) {
    const int k = c.shape(state).k, capacity = static_cast<int>(c.params<MetricsPushParams>().capacity);
    c.state(state, k).require({counter}, u8, {1, 1, 1, 8}).that(capacity > 0, "the ring needs at least one row");
    c.require({ring}, u8, {1, 1, capacity, k * static_cast<int>(sizeof(MetricsRow))});
}

}  // namespace millrace::ops
