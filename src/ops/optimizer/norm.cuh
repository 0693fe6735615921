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

/// The norm of member k from its slices, by a block of kNormBlocks threads, and what follows from it.
__device__ inline void finish_norm(MemberState& m, const float* slices, float* shared) {
    const float norm = sqrtf(block_sum(slices[threadIdx.x], shared)) / m.loss_scale;
    m.grad_norm = norm;
    m.clip_scale = (m.clip_norm > 0 ? fminf(1.0f, m.clip_norm / (norm + 1e-6f)) : 1.0f) / m.loss_scale;
    if (!isfinite(norm)) m.nonfinite = 1;
}

/// Whether four neighbours of an arena may be read at once; an absent one does not matter.
inline bool quads(const tensor::Operand& o) {
    return !o.present() ||
           (reinterpret_cast<std::uintptr_t>(o.data) % (4 * tensor::size_of(o.dtype)) == 0 && o.stride_k % 4 == 0);
}

/// Fills the slot `scratch` of a grad_norm: kNormBlocks sums of squares that make up those of the gradients of trainable groups.
KernelResult make_norm_slices(Context& c, const Bound& grad_norm);

}  // namespace millrace::ops::cuda
