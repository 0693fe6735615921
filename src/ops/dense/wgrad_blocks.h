#pragma once
// Weight gradients of many layers in one launch, in blocks of 64 x 64 over all rows, in every element type.

#include <span>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// All of one type. Leaves sums of squares (squares.h).
KernelResult make_wgrad_blocks(Context&, std::span<const Bound> wgrads);
/// Predicted microseconds.
double wgrad_blocks_time(const Context&, std::span<const Bound> wgrads);

}  // namespace millrace::ops::cuda
