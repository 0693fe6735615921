#pragma once
// Strict f32 products on tensor cores.

#include "ops/cuda/context.h"

namespace millrace::ops::cuda {

/// A kernel that writes both operands of a product in f32 as numbers of bf16; the product of `a_parts` and `b_parts`, of the same
/// kind, is theirs. The memory is lent: of the kernels that follow, only that product may read it.
KernelResult make_parts(Context&, Product, const tensor::Operand& a, const tensor::Operand& b, tensor::Operand& a_parts,
                        tensor::Operand& b_parts);

}  // namespace millrace::ops::cuda
