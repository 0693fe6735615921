#pragma once
// Dense layers on tensor cores: whether a record or a pair of them takes the fused kernels, and those.

#include <algorithm>

#include "ops/cuda/context.h"
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
/// Predicted microseconds of these, from what the busiest multiprocessor reads.
double strips_forward_time(const Context&, const Bound& forward);
double strips_backward_time(const Context&, const Bound* dgrad, const Bound* backward);
/// The same in wide tiles.
KernelResult make_wide_forward(Context&, const Bound& forward, const wide::Tiling&);
KernelResult make_wide_backward(Context&, const Bound& dgrad, const Bound* backward, const wide::Tiling&);
/// Whether eight neighbouring columns of the product belong to one group of the layer.
bool has_wide_runs(const Bound& dgrad, const Bound& backward);
Match match_grouped_wgrad(const Context&, const Window& records);
KernelResult make_grouped_wgrad(Context&, std::span<const Bound> wgrads);

/// Whether a weight gradient can share a launch with others, in some form.
bool shares_launch(const Context&, const Bound& wgrad);
/// How many weight gradients from the first on `takes(record)` accepts, each of another weight: the sums of a weight that is used
/// twice must not meet in one launch.
template <class Takes>
std::size_t count_wgrads(std::span<const Bound> records, Takes takes) {
    const auto weight = [](const Bound& b) { return b[linear_wgrad::dw].data; };
    std::size_t count = 0;
    while (count < records.size() && records[count].record->op == &linear_wgrad::kDef && takes(records[count]) &&
           std::ranges::find(records.first(count), weight(records[count]), weight) == records.first(count).end())
        ++count;
    return count;
}

}  // namespace millrace::ops::cuda
