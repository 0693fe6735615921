#pragma once
// Batch statistics over any number of rows, in two launches: numbers of each chunk of rows, then every row with the numbers of
// all chunks. The first ones come from a kernel here or from the epilogue of a product.

#include "ops/dense/layer_args.cuh"

namespace millrace::ops::cuda::batch_norm {

/// Two numbers per column of each chunk of rows, [K,G,chunks,2 cols]: those of batch_moments and batch_moments_backward.
struct Chunks {
    Mat<float> values;
    int count, rows;  ///< chunks, rows of each but the last
};

/// Memory for a product in the shape of y, f32.
base::Result<DeviceTable> make_product_memory(Context&, const tensor::Operand& y, tensor::Operand& z);
/// Chunks of `rows` rows in a table of their own, one behind the other.
base::Result<DeviceTable> make_chunks(Context&, const tensor::Operand& layer, int rows, Chunks&);

/// dense_forward behind its product, or batch_apply: z, f32, without the bias; and its chunks.
KernelPtr make_apply_forward(Context&, const Bound& forward, const tensor::Operand& z, const Chunks&);
/// dense_backward or batch_apply_backward with its chunks.
KernelPtr make_apply_backward(Context&, const Bound& backward, const Chunks&);

/// dense_forward whose product z, f32, is given; dense_backward. Chunks and all.
KernelResult make_forward(Context&, const Bound& forward, const tensor::Operand& z);
KernelResult make_backward(Context&, const Bound& backward);

/// A layer's element on the way back: du of dense_backward, and xhat.
template <class T>
__device__ float gradient_at(const LayerBackward<T>& a, const DropoutKey& key, const DropoutRule& rule, float dy, float xhat,
                             float gamma, float beta, std::uint64_t element) {
    return dy * dropout_factor(key, rule, element) * activation_slope(gamma * xhat + beta, a.p.activation);
}

}  // namespace millrace::ops::cuda::batch_norm
