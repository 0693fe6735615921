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

/// Of a conv_backward record: slabs for its weight gradients, at most one a row, in memory of their own.
struct ConvSlabs {
    WeightSums sums;
    DeviceTable memory;
};
base::Result<ConvSlabs> make_slabs(Context& c, const Bound& b, int slabs);
/// Kernels of the two products; null: not wanted. `sums` writes all slabs.
struct ConvProducts {
    std::shared_ptr<Kernel> sums, dx;
};
/// The record from its products.
KernelResult finish_conv_backward(Context& c, const Bound& b, const ConvSlabs& slabs, const ConvProducts& products);

KernelResult make_conv_forward(Context& c, const Bound& b);
KernelResult make_conv_backward(Context& c, const Bound& b);

}  // namespace millrace::ops::cuda
