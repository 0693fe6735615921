#include "ops/attention/cached.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(attention_cached, Phase::forward, {"qkv"}, {"position"}, {"cache", update}, {"out", write});

}  // namespace millrace::ops
