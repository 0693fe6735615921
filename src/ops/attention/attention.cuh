#pragma once
// What the kernels of attention know of their record, and which kernels there are.

#include "ops/attention/attention.h"
#include "ops/text/sequences.cuh"

namespace millrace::ops::cuda {

struct AttentionShape {
    int positions, heads, width, prefix;
    bool causal;
    float scale;  ///< 1 / sqrt(width)

    /// Position i sees the first so many of the filled ones.
    [[nodiscard]] __device__ int seen(int i, int filled) const { return causal ? min(filled, max(i + 1, prefix)) : filled; }
    /// Query from which on key j is seen.
    [[nodiscard]] __device__ int first_query(int j) const { return causal && j >= prefix ? j : 0; }
};

/// Of both directions; what a direction has no slot for is null. `out` is written forward and read backward.
template <class Real>
struct AttentionArgs {
    Mat<const Real> qkv, dout;
    Mat<const std::int32_t> lengths;
    Mat<float> logsumexp, delta;
    Mat<Real> out, dqkv;
    AttentionShape shape;
    int sequences, members;
    bool whole;  ///< rows of every head begin at multiples of 16 bytes
    bool early;  ///< of what is read, the launch in front writes qkv (forward) or dout (backward) alone

    [[nodiscard]] __host__ __device__ int pairs() const { return sequences * shape.heads; }
};

/// One head of one sequence.
struct AttentionPlace {
    int k, head, filled, column;  ///< member; head and its first column; filled positions of the sequence
    std::int64_t row;             ///< of the sequence's first position
};
template <class Real>
__device__ AttentionPlace place_of(const AttentionArgs<Real>& a, int pair) {
    const int k = blockIdx.z, sequence = pair / a.shape.heads, head = pair % a.shape.heads;
    const int filled = a.shape.prefix + tokens_of(a.lengths, k, sequence, a.shape.positions - a.shape.prefix);
    return {k, head, filled, head * a.shape.width, std::int64_t{sequence} * a.shape.positions};
}
/// Queries (part 0), keys (1) or values (2) of a place at its position 0, or their gradients in dqkv.
template <class Real>
__device__ Real* part_of(const Mat<Real>& qkv, const AttentionShape& shape, const AttentionPlace& place, int part) {
    return qkv.row(place.k, 0, place.row) + part * shape.heads * shape.width + place.column;
}

/// Grid of `blocks` per head.
template <class Real>
dim3 attention_grid(const AttentionArgs<Real>& a, int blocks) {
    return dim3(static_cast<unsigned>(a.pairs() * blocks), 1, static_cast<unsigned>(a.members));
}

/// Tensor cores have kernels of fixed width for heads of up to 128 columns.
constexpr int kMostFlashWidth = 128;
/// Bytes of shared memory that suffice for all of these kernels.
constexpr std::size_t flash_bytes_of(int width) { return (width <= 64 ? 75 : 106) * 1024; }
template <class T>
bool has_flash_width(const Context& c, const AttentionArgs<T>& a) {
    return a.shape.width <= kMostFlashWidth && flash_bytes_of(a.shape.width) <= c.shared_limit;
}
/// Up to so many positions one block has a whole head.
constexpr int kShortPositions = 64;
/// Streamed rows that a warp takes at a time in kernels for any width, forward and back.
constexpr int kAnyKeys = 32, kAnyChunk = 16;

/// In bf16 and f16, of any width and alignment that shared memory takes (takes_flash).
template <class T>
KernelResult make_flash_forward(Context& c, const AttentionArgs<T>& a);
/// Two launches: gradients of the queries, which also find delta, then those of keys and values.
template <class T>
KernelResult make_flash_backward(Context& c, const AttentionArgs<T>& a);
/// One launch, for sequences of at most kShortPositions positions and heads of a fixed width in whole rows.
template <class T>
KernelResult make_short_backward(Context& c, const AttentionArgs<T>& a);
/// The same of heads of any width and alignment, where shared memory takes one (takes_wide_backward).
template <class T>
KernelResult make_wide_backward(Context& c, const AttentionArgs<T>& a);
bool takes_wide_backward(const Context& c, const AttentionShape& shape);
bool takes_flash(const Context& c, const AttentionShape& shape);

/// Of any width and alignment, without tensor cores.
template <bool kForward, class Real>
KernelResult make_plain_attention(Context& c, const AttentionArgs<Real>& a);

}  // namespace millrace::ops::cuda
