#pragma once
// What the kernel of a layer's forward pass is given.

#include "ops/sequence/layer.cuh"

namespace millrace::ops::cuda::sequence {

/// Parameters of 128 columns each, in the order of shared memory; the widest bias comes last.
enum Vector { in_bias, out_bias = 3, narrow_bias, gammas, betas = 7, widen_bias = 9, kOtherVectors = widen_bias };

/// Matrices in global memory whose place a block works out once: weights, the layer's input, then what it writes; of each norm
/// sum, y, mean and inv_std. saved, before the activation, may be absent.
enum Operands {
    in_weights,
    out_weights,
    widen_weights,
    narrow_weights,
    layer_in,
    qkv_out,
    attended_out,
    saved_out,
    inner_out,
    logsumexp_out,
    norm_out,
    kNormOutputs = 4,
    kOperands = norm_out + 2 * kNormOutputs
};

struct OperandArgs {
    Matrices<char> where;  ///< strides in elements
    int bytes;             ///< of an element
};
struct ForwardArgs {
    Matrices<const std::int32_t> lengths;
    Matrices<const float> vectors[kOtherVectors + 2];
    OperandArgs operands[kOperands];
    float eps[2];
    int positions;
    bool early;
    Dropout dropout[2];  ///< of out_proj and linear2
    States state;        ///< with dropout
};

}  // namespace millrace::ops::cuda::sequence
