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

}  // namespace millrace::ops::cuda
