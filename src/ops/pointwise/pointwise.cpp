#include "ops/pointwise/pointwise.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(fill, {}, {"out", write});
MILLRACE_OPERATOR(copy, {}, {"in"}, {"out", write});
MILLRACE_OPERATOR(add, {}, {"a"}, {"b"}, {"out", add});
MILLRACE_OPERATOR(pointwise_forward, Phase::forward, {"x"}, {"state"}, {"y", write});
MILLRACE_OPERATOR(pointwise_backward, Phase::backward, {"dy"}, {"x"}, {"state"}, {"dx", add});

MILLRACE_REWRITE(fills, fill, 0);

}  // namespace millrace::ops
