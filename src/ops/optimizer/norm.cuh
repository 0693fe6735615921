#pragma once
// What the norm of the gradients and the update share on the device.

#include "ops/cuda/context.h"
#include "ops/cuda/device.cuh"
#include "ops/optimizer/optimizer.h"

namespace millrace::ops::cuda {

/// The segment of an element that only moves on, or only back. No kernel writes segments, so one may stand before begin_kernel.
struct Cursor {
    int at = 0, begin;  ///< number of the segment, its first element
    Segment now;

    __device__ Cursor(const Segments& segments, std::int64_t i) {
        for (int beyond = segments.count - 1; at < beyond;) {  // the first segment that ends beyond i, or the last
            const int middle = (at + beyond) / 2;
            if (i < segments.data[middle].end)
                beyond = middle;
            else
                at = middle + 1;
        }
        now = segments.data[at];
        begin = begin_of(segments);
    }
    /// To element i, which lies before the end of the last segment.
    __device__ void move(const Segments& segments, std::int64_t i) {
        while (i >= now.end) now = segments.data[++at];
    }
    /// To element i from a later one.
    __device__ void move_back(const Segments& segments, std::int64_t i) {
        while (i < begin) {
            now = segments.data[--at];
            begin = begin_of(segments);
        }
    }

private:
    __device__ int begin_of(const Segments& segments) const { return at > 0 ? segments.data[at - 1].end : 0; }
};

/// What follows from the sum of the squares of a member's gradients.
__device__ inline void set_norm(MemberState& m, float squares) {
    const float norm = sqrtf(squares) / m.loss_scale;
    m.grad_norm = norm;
    m.clip_scale = (m.clip_norm > 0 ? fminf(1.0f, m.clip_norm / (norm + 1e-6f)) : 1.0f) / m.loss_scale;
    if (!isfinite(norm)) m.nonfinite = 1;
}
/// The norm of a member from its slices, by a block of kNormBlocks threads.
__device__ inline void finish_norm(MemberState& m, const float* slices, float* shared) {
    set_norm(m, block_sum(slices[threadIdx.x], shared));
}
/// The same by a warp, for all its lanes; the sums are in another order.
__device__ inline void finish_norm_in_warp(MemberState& m, const float* slices) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kNormBlocks; i += 32) sum += slices[i + threadIdx.x % 32];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    set_norm(m, sum);
}

/// Whether four neighbours of an arena may be read at once; an absent one does not matter.
inline bool quads(const tensor::Operand& o) {
    return !o.present() ||
           (reinterpret_cast<std::uintptr_t>(o.data) % (4 * tensor::size_of(o.dtype)) == 0 && o.stride_k % 4 == 0);
}

/// What a `segments` slot holds, for the host.
base::Result<std::vector<ops::Segment>> read_segments(const Context& c, const tensor::Operand& segments);
/// Fills the slot `scratch` of a grad_norm: kNormBlocks sums of squares that make up those of the gradients of trainable groups.
KernelResult make_norm_slices(Context& c, const Bound& grad_norm);
/// micro_end, if it stands there, grad_norm, optimizer and metrics_push as two launches.
Match match_fused_update(const Context& c, const Window& records);
KernelResult make_fused_update(Context& c, std::span<const Bound> records);

}  // namespace millrace::ops::cuda
