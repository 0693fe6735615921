#pragma once
// What the forward and the backward records of a layer over short sequences have in common. Host code.

#include <cstddef>
#include <cstdint>

#include "ops/dense/dense.h"

namespace millrace::ops {

/// Of the layers that the kernels take: columns, heads, most positions of a sequence.
constexpr int kLayerColumns = 128, kLayerHeads = 4, kMostPositions = 64;

/// Whether rows begin at multiples of 16 bytes and strides have 31 bits.
inline bool has_whole_rows(const tensor::Operand& o) {
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    const auto whole = [size](std::int64_t stride) { return stride * size % 16 == 0 && stride <= INT32_MAX; };
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && (o.rows <= 1 || whole(o.stride_row)) &&
           (o.g <= 1 || whole(o.stride_g)) && (o.k <= 1 || whole(o.stride_k));
}

/// Whether two operands are the same elements.
inline bool same_place(const tensor::Operand& a, const tensor::Operand& b) {
    return a.data == b.data && a.dtype == b.dtype && a.k == b.k && a.g == b.g && a.rows == b.rows && a.cols == b.cols &&
           a.stride_row == b.stride_row && (a.k <= 1 || a.stride_k == b.stride_k) && (a.g <= 1 || a.stride_g == b.stride_g);
}
/// The same where attention has the groups of `a` as members.
inline bool same_abreast(const tensor::Operand& attention, tensor::Operand a) {
    if (a.g > 1) {
        if (a.k > 1) return false;
        a.k = a.g;
        a.stride_k = a.stride_g;
        a.g = 1;
    }
    return same_place(attention, a);
}

/// An operand of attention as the other records see it: groups that it has as members are groups again.
inline tensor::Operand grouped(tensor::Operand o, int groups) {
    if (groups == 1) return o;
    o.g = groups;
    o.stride_g = o.stride_k;
    o.k = 1;
    return o;
}

inline bool drops(const Bound& dense) { return dense.params<DenseParams>().dropout > 0; }
/// Whether two linear layers drop by the same states, or neither drops. `state`: that slot of both.
inline bool drop_alike(const Bound& a, const Bound& b, int state) {
    return drops(a) == a[state].present() && drops(b) == b[state].present() && same_place(a[state], b[state]);
}

}  // namespace millrace::ops
