#pragma once
// Sums of squares that kernels leave of the gradients they write, so that the norm of all gradients need not read those again.

#include <vector>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// Of the records prepared so far (Context::squares): the newest values of a gradient have these sums.
struct GradientSquares {
    tensor::Operand gradient;  ///< f32, each member's elements are neighbours
    DeviceTable sums;          ///< [K][parts]
    int parts = 0;
};

/// Where the kernel under preparation leaves the sums of squares of `gradient`, which it writes as a whole: a table [K][parts]
/// that it fills in every run and holds. Empty where the norm does not use them: in deterministic runs, whose sums keep their
/// order, in a region, which may be left out, and for a gradient whose elements are no neighbours.
base::Result<DeviceTable> leave_squares(Context& c, const tensor::Operand& gradient, int parts);
/// After the group of a record that writes to a gradient its earlier sums are wrong; `before`: sums that are older than the
/// group.
void forget_squares(Context& c, const Bound& written, std::size_t& before);

}  // namespace millrace::ops::cuda
