#pragma once
// Ways of doing dense layers and their gradients on CUDA: whether one applies, its predicted microseconds, its kernel.

#include <algorithm>
#include <span>

#include "ops/cuda/forms.h"
#include "ops/dense/dense.h"
#include "ops/tile/wide.h"

namespace millrace::ops::cuda {

/// Why dense_forward cannot run as one kernel, null: it can. Operands have to be of one type and, with batch statistics, have at
/// most Context::fused_rows rows.
const char* refuses_strips(const Context&, const Bound& forward);
KernelResult make_fused_dense_forward(Context&, const Bound& forward);
/// dense_backward alone (`dgrad` null), linear_dgrad alone (`backward` null), or the pair as one kernel.
bool fuses_backward(const Context&, const Bound* dgrad, const Bound* backward);
KernelResult make_fused_backward(Context&, const Bound* dgrad, const Bound* backward);
/// From what the busiest multiprocessor reads.
double strips_forward_time(const Context&, const Bound& forward);
double strips_backward_time(const Context&, const Bound* dgrad, const Bound* backward);
/// The same in wide tiles.
KernelResult make_wide_forward(Context&, const Bound& forward, const wide::Tiling&);
KernelResult make_wide_backward(Context&, const Bound& dgrad, const Bound* backward, const wide::Tiling&);
/// Whether eight neighbouring columns of the product belong to one group of the layer.
bool has_wide_runs(const Bound& dgrad, const Bound& backward);

/// Whether dense_backward reads what linear_dgrad writes. Their groups may be others: those of either lie side by side in a row.
bool reads_product(const Bound& dgrad, const Bound& backward);

Match match_grouped_wgrad(const Context&, const Window& records);
KernelResult make_grouped_wgrad(Context&, std::span<const Bound> wgrads);

/// Weight gradients of many layers in one launch, in tiles of 64 x 64 or 128 x 128 whose rows blocks may share, in every element
/// type, with the sums for biases. All of one type. Leaves sums of squares (cuda/squares.h).
KernelResult make_wgrad_blocks(Context&, std::span<const Bound> wgrads);
double wgrad_blocks_time(const Context&, std::span<const Bound> wgrads);

/// Whether the sum of the squares of a linear_wgrad costs fewer products from the inner products of the batch's rows than from
/// the gradient itself, and this GPU has them: bf16 or f16, at most 128 rows, both operands 16-byte aligned.
bool takes_gram_squares(const Context&, const Bound& wgrad);
/// Leaves the sums of squares of all gradients (cuda/squares.h), of one type, none of which is written.
KernelResult make_gram_squares(Context&, std::span<const Bound> wgrads);

/// Products of ops/tile, with what follows them in their epilogues: 16 bits an element, any number of rows.
namespace tiled {

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
double forward_time(const Context&, const Bound& forward);
double dgrad_time(const Context&, const Bound& dgrad, const Bound* backward);
double wgrads_time(const Context&, std::span<const Bound> wgrads);

}  // namespace tiled
}  // namespace millrace::ops::cuda
