#pragma once
// The norm of weight gradients that are never written to memory: their sums of squares from inner products of the batch's rows.

#include <span>

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// Whether the sum of the squares of a linear_wgrad costs fewer products from the inner products of the batch's rows than from
/// the gradient itself, and this GPU has them: bf16 or f16, at most 128 rows, both operands 16-byte aligned.
bool takes_gram_squares(const Context&, const Bound& wgrad);
/// Leaves the sums of squares of all gradients (squares.h), of one type, none of which is written.
KernelResult make_gram_squares(Context&, std::span<const Bound> wgrads);

}  // namespace millrace::ops::cuda
