#pragma once
// The launches that make up a convolution on CUDA.

#include "ops/conv/conv_args.cuh"
#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// Whether the tensor cores' kernels take these channels and this layout.
bool takes_conv_tiles(const Context& c, const ConvArgs<bf16>& a);
/// Forward or, with `back`, the gradient of x. Null where the maps do not fit into shared memory.
base::Result<KernelPtr> make_conv_maps(Context& c, const ConvArgs<bf16>& a, bool back);
/// Writes all of `sums`, which has conv_slabs() slabs. Null where the maps do not fit.
base::Result<KernelPtr> make_conv_weight_sums(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums);
/// Fixed by the shape alone.
int conv_slabs(const ConvParams& p, int rows);

/// Whether the kernels of lines.cuh take this: one column, three taps that reach into it, channels that they know.
bool takes_lines(const Context& c, const ConvArgs<bf16>& a);
/// Null where shared memory is too small.
KernelResult make_line_forward(Context& c, const ConvArgs<bf16>& a);
/// Writes all of `sums`, which has line_slabs() slabs, and dx unless it is absent.
KernelResult make_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums);
int line_slabs(const ConvParams& p, int rows);

/// The same for the first layer of such a network: one channel in, no pooling and dropout, dx is not wanted.
bool takes_first_line(const Context& c, const ConvArgs<bf16>& a);
KernelResult make_first_line_forward(Context& c, const ConvArgs<bf16>& a);
KernelResult make_first_line_backward(Context& c, const ConvArgs<bf16>& a, const WeightSums& sums);
int first_line_slabs(int rows);

}  // namespace millrace::ops::cuda
