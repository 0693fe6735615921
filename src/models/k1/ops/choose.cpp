#include "models/k1/ops/choose.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(choose_nodes, Phase::optimizer, {"grads"}, {"state"}, {"groups", update}, {"statistics", update},
                  {"carries", update});

}  // namespace millrace::ops
