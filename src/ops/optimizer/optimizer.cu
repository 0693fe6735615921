// Clipping and the update, one launch over the arenas of all members.

#include "ops/optimizer/update.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256;

/// The report of member k, whose block finishes its norm first.
__device__ void report_step(const UpdateArgs& a, int k, float* shared) {
    const std::uint64_t sequence = *a.counter + 1;
    MemberState m = a.state[k];
    finish_norm(m, a.slices.row(k, 0, 0), shared);
    if (threadIdx.x == 0) report_member(a, k, m, sequence);
}

/// Four neighbouring elements of the arenas of one member.
struct Quad {
    float4 p, g, m, v;
};

struct Arenas {
    float *params, *grads, *first, *second;
    std::uint16_t* copy;
    bool f16;
    int first_copied;

    __device__ Arenas(const UpdateArgs& a, int k)
        : params(a.params.row(k, 0, 0)),
          grads(a.grads.row(k, 0, 0)),
          first(a.m ? a.m.row(k, 0, 0) : nullptr),
          second(a.v ? a.v.row(k, 0, 0) : nullptr),
          copy(a.copy16 ? a.copy16.row(k, 0, 0) : nullptr),
          f16(a.copies_f16),
          first_copied(a.p.first_copied) {}

    /// Zeros before the first element, and for a gradient that is not there.
    __device__ Quad read(int i, bool has_gradient) const {
        Quad q{};
        if (i < 0) return q;
        q.p = *reinterpret_cast<const float4*>(params + i);
        if (has_gradient) q.g = *reinterpret_cast<const float4*>(grads + i);
        if (first) q.m = *reinterpret_cast<const float4*>(first + i);
        if (second) q.v = *reinterpret_cast<const float4*>(second + i);
        return q;
    }
    __device__ void write(int i, const Quad& q) const {
        *reinterpret_cast<float4*>(params + i) = q.p;
        if (first) *reinterpret_cast<float4*>(first + i) = q.m;
        if (second) *reinterpret_cast<float4*>(second + i) = q.v;
        if (!copy || i < first_copied) return;
        *reinterpret_cast<uint2*>(copy + i) = make_uint2(pair_bits(q.p.x, q.p.y, f16), pair_bits(q.p.z, q.p.w, f16));
    }
};

/// A block's share of member k, from the last element on in steps of `stride`: streams with the next quad always under way. The
/// first one is asked for before the norm is finished. From the last to the first: those gradients were read for the norm most
/// recently, and what is written last, the first layers' weights, is what the next step reads first. Flags of rows are asked for
/// a quad earlier than the gradients that wait for them.
__device__ void stream_update(const UpdateArgs& a, int k, int i, int stride, Cursor& cursor, bool writes_norm, float* shared) {
    const Arenas arenas(a, k);
    Quad next = arenas.read(i, a.rows.has(k, i));
    bool next_has_gradient = a.rows.has(k, i - stride);
    MemberState s = a.state[k];
    GroupState group = a.groups.row(k)[cursor.now.group];
    if (a.slices) finish_norm(s, a.slices.row(k, 0, 0), shared);
    if (writes_norm) {  // the other blocks of the member have their own copy of these two
        a.state[k].grad_norm = s.grad_norm;
        a.state[k].clip_scale = s.clip_scale;
    }
    const bool dropped = s.nonfinite != 0;
    const float clip_scale = s.clip_scale;
    Rates rates(s, group);
    while (i >= 0) {
        const bool changes = !dropped && group.updated();
        for (; i >= cursor.begin; i -= stride) {
            Quad q = next;
            next = arenas.read(i - stride, next_has_gradient);
            next_has_gradient = a.rows.has(k, i - 2 * stride);
            if (changes) {
                q.p.x = update(rates, a.p.kind, q.p.x, q.g.x, q.m.x, q.v.x);
                q.p.y = update(rates, a.p.kind, q.p.y, q.g.y, q.m.y, q.v.y);
                q.p.z = update(rates, a.p.kind, q.p.z, q.g.z, q.m.z, q.v.z);
                q.p.w = update(rates, a.p.kind, q.p.w, q.g.w, q.m.w, q.v.w);
                arenas.write(i, q);
            }
            if (a.p.zero_grads) *reinterpret_cast<float4*>(arenas.grads + i) = make_float4(0, 0, 0, 0);
        }
        if (i < 0) break;
        cursor.move_back(a.segments, i);
        group = a.groups.row(k)[cursor.now.group];
        rates = Rates(a.state[k], group);  // read again: registers are scarce
        rates.clip_scale = clip_scale * group.gradient_gain;
    }
}

__global__ void __launch_bounds__(kThreads, 4) update_kernel(const __grid_constant__ UpdateArgs a) {
    __shared__ float shared[32];
    __shared__ bool last_block;
    const int k = blockIdx.y, first = a.slices ? 1 : 0;
    const int first_quad = 4 * ((static_cast<int>(blockIdx.x) - first) * kThreads + static_cast<int>(threadIdx.x)),
              stride = 4 * (static_cast<int>(gridDim.x) - first) * kThreads,
              last_quad = first_quad + (static_cast<int>(a.width) - 1 - first_quad + stride) / stride * stride - stride;
    Cursor cursor(a.segments, last_quad);
    begin_kernel();
    if (!a.slices) {
        stream_update(a, k, last_quad, stride, cursor, false, shared);
        return;
    }
    if (blockIdx.x == 0)
        report_step(a, k, shared);
    else
        stream_update(a, k, last_quad, stride, cursor, blockIdx.x == 1 && threadIdx.x == 0, shared);
    close_when_last(a, &last_block);
}

/// The same for arenas whose width is no multiple of four.
__global__ void update_tail_kernel(const __grid_constant__ UpdateArgs a, std::int64_t begin) {
    const std::int64_t i = begin + blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
    const Cursor cursor(a.segments, i);
    begin_kernel();
    if (i >= a.width) return;
    const int k = blockIdx.y;
    const GroupState group = a.groups.row(k)[cursor.now.group];
    const Rates rates(a.state[k], group);
    float* grad = a.grads.row(k, 0, 0) + i;
    if (a.state[k].nonfinite == 0 && group.updated()) {
        float m = a.m ? a.m.row(k, 0, 0)[i] : 0, v = a.v ? a.v.row(k, 0, 0)[i] : 0;
        float* param = a.params.row(k, 0, 0) + i;
        *param = update(rates, a.p.kind, *param, *grad, m, v);
        if (a.m) a.m.row(k, 0, 0)[i] = m;
        if (a.v) a.v.row(k, 0, 0)[i] = v;
        if (a.copy16 && i >= a.p.first_copied)
            a.copy16.row(k, 0, 0)[i] = static_cast<std::uint16_t>(pair_bits(*param, 0, a.copies_f16));
    }
    if (a.p.zero_grads) *grad = 0;
}

__global__ void count_step_kernel(States state, Groups groups, std::uint32_t scale_interval, int members) {
    begin_kernel();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < members * groups.count) count_step(state, groups, scale_interval, i);
}

bool takes_quads(const Bound& b) {
    using namespace optimizer;
    return quads(b[params]) && quads(b[grads]) && quads(b[m]) && quads(b[v]) && quads(b[copy16]);
}

unsigned update_blocks(const Context& c, std::int64_t elements, unsigned members) {
    // Two quads a thread at least, and no more blocks than run at once: each streams, none waits for a place.
    return std::max(1u, std::min(blocks_for(elements / 8, kThreads), static_cast<unsigned>(4 * c.multiprocessors) / members));
}

}  // namespace

KernelResult make_optimizer(Context& c, const Bound& b) {
    using namespace optimizer;
    const Operand &op = b[params], &s = b[state];
    const UpdateArgs a = update_args(b);
    const bool vector = takes_quads(b);
    const std::int64_t whole = vector ? std::int64_t{op.cols} / 4 * 4 : 0, tail = op.cols - whole;
    const auto members = static_cast<unsigned>(op.k);
    const unsigned blocks = update_blocks(c, whole, members);
    return make_kernel([=, stream = c.stream] {
        if (whole > 0) {
            UpdateArgs body = a;
            body.width = whole;
            launch(update_kernel, dim3(blocks, members), dim3(kThreads), 0, stream, body);
        }
        if (tail > 0) launch(update_tail_kernel, dim3(blocks_for(tail, 256), members), dim3(256), 0, stream, a, whole);
        launch(count_step_kernel, dim3(blocks_for(s.k * a.groups.count, 64)), dim3(64), 0, stream, s, a.groups,
               a.p.scale_interval, s.k);
    });
}

Match match_fused_update(const Context&, const Window& records) {
    if (records.size() < 3 || records[1].record->op != &optimizer::kDef || records[2].record->op != &metrics_push::kDef)
        return {};
    const Operand& p = records[1][optimizer::params];
    const bool fits = takes_quads(records[1]) && p.cols % 4 == 0 && p.count() > 0 &&
                      records[0][grad_norm::grads].data == records[1][optimizer::grads].data;
    return Match::first(fits ? 3 : 0);
}

KernelResult make_fused_update(Context& c, std::span<const Bound> records) {
    const Bound &norm = records[0], &update = records[1], &push = records[2];
    DeviceTable blocks_done;
    MILLRACE_LET(a, closing_args(c, update, push, blocks_done));
    a.slices = norm[grad_norm::scratch];
    static_assert(kThreads == kNormBlocks);
    const auto members = static_cast<unsigned>(update[optimizer::params].k);
    const unsigned blocks = update_blocks(c, a.width, members);
    MILLRACE_LET(slices, make_norm_slices(c, norm));
    const Operand& grads = update[optimizer::grads];
    const auto rows = a.p.zero_grads ? nullptr : skip_zeros(c, grads);
    if (rows) a.rows = FlaggedRows(*rows, grads);
    return in_order({std::move(slices), make_launch(c, update_kernel, dim3(blocks + 1, members), dim3(kThreads), 0, a)},
                    blocks_done, rows);
}

}  // namespace millrace::ops::cuda
