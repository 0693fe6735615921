#pragma once
// Dense layers in bf16 on tensor cores: whether a record or a pair of them takes the fused kernels, and those.

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// Whether dense_forward runs as one kernel: bf16 and, with batch statistics, at most Context::fused_rows rows. Wide layers over
/// very many rows are left to the library unless runs are pinned.
bool fuses_dense_forward(const Context&, const Bound& forward);
KernelResult make_fused_dense_forward(Context&, const Bound& forward);
/// dense_backward alone (`dgrad` null), linear_dgrad alone (`backward` null), or the pair as one kernel.
bool fuses_backward(const Context&, const Bound* dgrad, const Bound* backward);
KernelResult make_fused_backward(Context&, const Bound* dgrad, const Bound* backward);
/// Whether a weight gradient can share a launch; sums over very many rows stay with the library, which splits them.
bool groups_wgrad(const Context&, const Bound& wgrad);
KernelResult make_grouped_wgrad(Context&, std::span<const Bound> wgrads);

}  // namespace millrace::ops::cuda
