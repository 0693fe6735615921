#pragma once
// The recurrent layer in bf16 with products and gates in one kernel, where shapes and device allow.

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

bool tiles_gru_forward(const Context&, const Bound&);
KernelResult make_tiled_gru_forward(Context&, const Bound&);
bool tiles_gru_backward(const Context&, const Bound&);
KernelResult make_tiled_gru_backward(Context&, const Bound&);

}  // namespace millrace::ops::cuda
