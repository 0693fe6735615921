#include "ops/step/step.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(step_begin, Phase::data, {"state", update}, {"groups", update});
MILLRACE_OPERATOR(micro_end, Phase::optimizer, {"state", update});
MILLRACE_OPERATOR(metrics_push, Phase::optimizer, {"state"}, {"counter", update}, {"ring", write});

}  // namespace millrace::ops
