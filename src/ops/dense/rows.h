#pragma once
// Dense layers without batch statistics, over many rows: what surrounds their products, in runs of 16 bytes where it can be.

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// The rest of a dense_forward behind its product z, which is in the memory of `saved` or y.
KernelResult make_rows_epilogue(Context&, const Bound& forward, const tensor::Operand& z);
/// dense_backward of any number of columns.
KernelResult make_rows_backward(Context&, const Bound& backward);

}  // namespace millrace::ops::cuda
