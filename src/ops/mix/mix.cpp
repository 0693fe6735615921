#include "ops/mix/mix.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mix_groups, {}, {"in"}, {"out", add});

}  // namespace millrace::ops
