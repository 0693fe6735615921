#pragma once
// Convolutions of three taps along one column have kernels of their own on CUDA: these rewrites of one record put them in the
// place of the general ones.

#include "ops/rewrite.h"

namespace millrace::ops {

namespace line_forward_rewrite {
extern const Rewrite kRewrite;
}
namespace line_backward_rewrite {
extern const Rewrite kRewrite;
}

}  // namespace millrace::ops
