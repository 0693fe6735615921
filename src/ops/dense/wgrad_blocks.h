#pragma once
// Weight gradients of many layers in one launch, in tiles of 64 x 64 or 128 x 128 whose rows blocks may share, in every element
// type, with the sums for biases.

#include <span>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// All of one type. Leaves sums of squares (squares.h).
KernelResult make_wgrad_blocks(Context&, std::span<const Bound> wgrads);
/// Predicted microseconds.
double wgrad_blocks_time(const Context&, std::span<const Bound> wgrads);

}  // namespace millrace::ops::cuda
