#pragma once
// Dense layers as products of ops/tile, with what follows a product in its epilogue: 16 bits an element, any number of rows.

#include <span>

#include "ops/cuda/context.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cuda::tiled {

/// Why a record cannot be such a product, null: it can. The GPU needs the instructions, and bulk tensor copies have to be able to
/// read both operands.
const char* refuses_forward(const Context&, const Bound& forward);
const char* refuses_dgrad(const Context&, const Bound& dgrad);
const char* refuses_wgrad(const Context&, const Bound& wgrad);
/// Why dense_backward cannot follow linear_dgrad in its epilogue.
const char* refuses_pair(const Context&, const Bound& dgrad, const Bound& backward);

KernelResult make_forward(Context&, const Bound& forward);
/// linear_dgrad, with dense_backward of the layer below where `backward` is not null.
KernelResult make_dgrad(Context&, const Bound& dgrad, const Bound* backward);
KernelResult make_wgrads(Context&, std::span<const Bound> wgrads);

/// Predicted microseconds.
double forward_time(const Context&, const Bound& forward);
double dgrad_time(const Context&, const Bound& dgrad, const Bound* backward);
double wgrads_time(const Context&, std::span<const Bound> wgrads);

}  // namespace millrace::ops::cuda::tiled
