#pragma once
// A layer over short sequences as one kernel forward and one back: attention, then two linear layers, each with a residual and a
// layer norm behind it, of width 128 with heads of 32 columns, in bf16. The kernels write all that the records write.

#include "ops/op.h"

namespace millrace::ops::cuda::sequence {

/// The layer's forward pass in the order of its records.
struct ForwardRecords {
    const Bound &in, &attention, &out, &norm1, &widen, &narrow, &norm2;
};
constexpr std::size_t kForwardRecords = 7;
inline ForwardRecords forward_records(std::span<const Bound> r) { return {r[0], r[1], r[2], r[3], r[4], r[5], r[6]}; }

/// Whether two operands are the same elements.
inline bool same_place(const tensor::Operand& a, const tensor::Operand& b) {
    return a.data == b.data && a.dtype == b.dtype && a.k == b.k && a.g == b.g && a.rows == b.rows && a.cols == b.cols &&
           a.stride_row == b.stride_row && (a.k <= 1 || a.stride_k == b.stride_k) && (a.g <= 1 || a.stride_g == b.stride_g);
}
/// The same where `b` has the groups of `a` as members.
inline bool same_memory(const tensor::Operand& a, tensor::Operand b) {
    if (a.g <= 1) return same_place(a, b);
    b.g = b.k;
    b.stride_g = b.stride_k;
    b.k = 1;
    return a.k == 1 && same_place(a, b);
}

}  // namespace millrace::ops::cuda::sequence
