#pragma once
// What the norm of the gradients and the updates share on the device: groups of elements, the norm from its slices, the update of
// one element, the end of a step.

#include <vector>

#include "ops/cuda/device.cuh"
#include "ops/cuda/squares.h"
#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"

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

/// The gradient of which only flagged rows are there, elements [begin, begin + size) of a member; the others are zeros.
struct FlaggedRows {
    const std::uint8_t* flags = nullptr;  ///< [K][count]
    int begin = 0, shift = 0;
    unsigned size = 0, count = 0;

    FlaggedRows() = default;
    FlaggedRows(const GradientSquares& left, const tensor::Operand& grads)
        : flags(static_cast<const std::uint8_t*>(left.rows.flags)),
          begin(static_cast<int>(place_in(left.gradient, grads))),
          shift(left.rows.shift),
          size(static_cast<unsigned>(left.gradient.count() / left.gradient.k)),
          count(size >> shift) {}
    /// Whether the quad at i has a gradient to be read; true before the first element.
    __device__ bool has(int k, int i) const {
        const unsigned at = static_cast<unsigned>(i) - static_cast<unsigned>(begin);
        return at >= size || flags[static_cast<unsigned>(k) * count + (at >> shift)] != 0;
    }
};

struct UpdateArgs {
    Mat<float> params, grads, m, v;
    Mat<std::uint16_t> copy16;
    States state;
    Groups groups;
    Segments segments;
    std::int64_t width;
    OptimizerParams p = {};
    bool copies_f16 = false;  ///< else bf16
    int members = 0;
    // Fused with norm and metrics: every block finishes the norm for itself, a member's first one writes it down, one more block
    // reports while the others stream (a write across the bus takes as long as a small update), and the last to be done closes
    // the step.
    Mat<const float> slices = {};
    std::uint32_t* blocks_done = nullptr;
    std::uint64_t* counter = nullptr;
    MetricsRow* ring = nullptr;
    std::uint32_t capacity = 0;
    FlaggedRows rows = {};
    MicroEndParams micro = {.training = false};  ///< of a micro-batch that ends with the step; else nothing ends
};

inline UpdateArgs update_args(const Bound& b) {
    using namespace optimizer;
    UpdateArgs a{b[params], b[grads], b[m], b[v], b[optimizer::copy16], b[state], b[groups], b[segments], b[params].cols};
    a.p = b.params<OptimizerParams>();
    a.copies_f16 = b[optimizer::copy16].dtype == tensor::DType::f16;
    a.members = b[params].k;
    return a;
}

/// Of a kernel that does the records of match_fused_update, given the norm's slices; it holds `blocks_done`, which counts its
/// blocks.
inline base::Result<UpdateArgs> closing_args(const Context& c, std::span<const Bound> records, DeviceTable& blocks_done) {
    const auto last = records.last(3);
    const Bound &norm = last[0], &update = last[1], &push = last[2];
    UpdateArgs a = update_args(update);
    if (records.size() > last.size()) a.micro = records[0].params<MicroEndParams>();
    a.slices = norm[grad_norm::scratch];
    a.counter = static_cast<std::uint64_t*>(push[metrics_push::counter].data);
    a.ring = static_cast<MetricsRow*>(push[metrics_push::ring].data);
    a.capacity = push.params<MetricsPushParams>().capacity;
    MILLRACE_LET(table, zero_table(c, sizeof(std::uint32_t)));
    blocks_done = table;
    a.blocks_done = static_cast<std::uint32_t*>(table);
    return a;
}

/// One thread fills member k's place in the metrics ring, as its state `m`, with the step's norm, will stand when the step is
/// closed.
__device__ inline void report_member(const UpdateArgs& a, int k, MemberState m, std::uint64_t sequence) {
    if (m.nonfinite) m.skipped += 1;
    m.adapt_loss_scale(m.nonfinite != 0, a.p.scale_interval);
    close_micro(a.micro, m);
    write_metrics(a.ring + (sequence % a.capacity) * a.members + k, m, sequence);
}

/// What the step leaves in the state of member k (group 0 writes it) and in one of its groups: a thread each, all loads at once.
__device__ inline void count_step(const States& states, const Groups& groups, std::uint32_t scale_interval, int i) {
    const int k = i / groups.count, g = i % groups.count;
    MemberState& m = states[k];
    GroupState& group = groups.row(k)[g];
    const std::uint32_t nonfinite = m.nonfinite, skipped = m.skipped, applied = m.applied, step = m.step,
                        group_applied = group.applied;
    const bool updated = group.updated();
    const bool dropped = nonfinite != 0 | !isfinite(m.grad_norm);
    if (!dropped && updated) {
        group.applied = group_applied + 1;
        group.last_applied = step;
    }
    if (g > 0) return;
    m.nonfinite = dropped ? 1 : 0;
    if (dropped)
        m.skipped = skipped + 1;
    else
        m.applied = applied + 1;
    m.adapt_loss_scale(dropped, scale_interval);
}

/// The last block of the grid closes the step: no block reads the state any more. `last` is shared by the block.
__device__ inline void close_when_last(const UpdateArgs& a, bool* last) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *last = atomicAdd(a.blocks_done, 1u) == gridDim.x * gridDim.y - 1;
        __threadfence();
    }
    __syncthreads();
    if (!*last) return;
    for (int i = threadIdx.x; i < a.members * a.groups.count; i += blockDim.x)
        count_step(a.state, a.groups, a.p.scale_interval, i);
    for (int k = threadIdx.x; k < a.members; k += blockDim.x) close_micro(a.micro, a.state[k]);
    if (threadIdx.x == 0) {
        *a.counter += 1;
        *a.blocks_done = 0;
    }
}

/// What the elements of one group of a member share in this step.
struct Rates {
    float clip_scale, weight_decay, beta1, beta2, epsilon, lr, step_size, inverse_root2;
    bool first;

    Rates() = default;
    __device__ Rates(const MemberState& s, const GroupState& group)
        : clip_scale(s.clip_scale * group.gradient_gain),
          weight_decay(s.weight_decay * group.decay_factor),
          beta1(s.beta1),
          beta2(s.beta2),
          epsilon(s.epsilon),
          lr(s.lr * group.lr_factor * group.gain),
          step_size(lr / group.bias1),
          inverse_root2(1 / sqrtf(group.bias2)),
          first(group.applied == 0) {}
};

/// Within one unit of the last place, without the branches of a rounded root, which keep a thread's elements apart.
__device__ inline float root_of(float v) {
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
    return root;
}

/// One element. Returns the new parameter.
__device__ inline float update(const Rates& s, OptimizerKind kind, float p, float g, float& m, float& v) {
    g *= s.clip_scale;
    if (kind == OptimizerKind::sgd) {
        g += s.weight_decay * p;
        m = s.first ? g : s.beta1 * m + g;
        return p - s.lr * (s.beta1 != 0 ? m : g);
    }
    if (kind == OptimizerKind::adamw)
        p -= s.lr * s.weight_decay * p;
    else
        g += s.weight_decay * p;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    return p - s.step_size * __fdividef(m, root_of(v) * s.inverse_root2 + s.epsilon);  // within two units of the change
}

// Tables of the kernel that computes weight gradients and applies them at once (tile_update.cu).

constexpr int kUpdateOutputs = 32, kUpdateInputs = 800, kUpdateDepth = 128;                ///< of a tile, at most
constexpr int kUpdateElements = kUpdateOutputs * kUpdateInputs, kUpdateStored = 8 * 1024;  ///< the latter of stored gradients

/// Parameters of one group: rows of dw = dz^T x, whole ones unless these are longer than a tile, or neighbours whose gradients
/// were stored.
struct alignas(16) UpdateTile {
    const float* stored;          ///< the gradients; null: dw
    const std::uint16_t *dz, *x;  ///< bits of bf16 or f16, as the copy has; first column of the tile, row 0; rows begin at
                                  ///< multiples of 16 bytes
    std::int32_t ld_dz, ld_x;     ///< elements from row to row
    std::int32_t rows;            ///< of the batch
    std::int32_t outputs, inputs;
    std::uint32_t at;    ///< first parameter in the arenas of all members
    std::int32_t count;  ///< how many there are, a multiple of 4
    std::int32_t gap;    ///< elements between the end of a row and the next one
    std::int32_t member, group;
};

/// Blocks of the kernel that run at once; 0: this GPU has not got the shared memory.
int tile_update_blocks(const Context& c);
/// Finishes the norm, updates what the tiles cover, reports and closes the step. The kernel holds `held`.
KernelResult make_tile_update(Context& c, const UpdateArgs& a, const std::vector<UpdateTile>& tiles, const DeviceTable& held);

}  // namespace millrace::ops::cuda
