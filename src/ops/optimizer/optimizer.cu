// Clipping and the update, one launch over the arenas of all members.

#include "ops/cuda/vector.cuh"
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

/// V neighbouring elements of the arenas of one member.
template <int V>
struct Elements {
    float p[V] = {}, g[V] = {}, m[V] = {}, v[V] = {};
};

template <int V>
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
    __device__ Elements<V> read(int i, bool has_gradient) const {
        Elements<V> e;
        if (i < 0) return e;
        load_run<V>(params + i, e.p);
        if (has_gradient) load_run<V>(grads + i, e.g);
        if (first) load_run<V>(first + i, e.m);
        if (second) load_run<V>(second + i, e.v);
        return e;
    }
    __device__ void write(int i, const Elements<V>& e) const {
        store_run<V>(params + i, e.p);
        if (first) store_run<V>(first + i, e.m);
        if (second) store_run<V>(second + i, e.v);
        if (!copy || i < first_copied) return;
        if constexpr (V == 4)
            *reinterpret_cast<uint2*>(copy + i) = make_uint2(pair_bits(e.p[0], e.p[1], f16), pair_bits(e.p[2], e.p[3], f16));
        else
            copy[i] = static_cast<std::uint16_t>(pair_bits(e.p[0], 0, f16));
    }
};

/// A block's share of member k, from the last element on in steps of `stride`: streams with the next elements always under way.
/// The first one is asked for before the norm is finished. From the last to the first: those gradients were read for the norm
/// most recently, and what is written last, the first layers' weights, is what the next step reads first. Flags of rows are asked
/// for a step earlier than the gradients that wait for them.
template <int V>
__device__ void stream_update(const UpdateArgs& a, int k, int i, int stride, Cursor& cursor, bool writes_norm, float* shared) {
    const Arenas<V> arenas(a, k);
    Elements<V> next = arenas.read(i, a.rows.has(k, i));
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
            Elements<V> e = next;
            next = arenas.read(i - stride, next_has_gradient);
            next_has_gradient = a.rows.has(k, i - 2 * stride);
            if (changes) {
#pragma unroll
                for (int j = 0; j < V; ++j) e.p[j] = update(rates, a.p.kind, e.p[j], e.g[j], e.m[j], e.v[j]);
                arenas.write(i, e);
            }
        }
        if (i < 0) break;
        cursor.move_back(a.segments, i);
        group = a.groups.row(k)[cursor.now.group];
        rates = Rates(a.state[k], group);  // read again: registers are scarce
        rates.clip_scale = clip_scale * group.gradient_gain;
    }
}

/// V: 4, or 1 for arenas that cannot be read in quads.
template <int V>
__global__ void __launch_bounds__(kThreads, 4) update_kernel(const __grid_constant__ UpdateArgs a) {
    __shared__ float shared[32];
    __shared__ bool last_block;
    const int k = blockIdx.y, first = a.slices ? 1 : 0;
    const int first_run = V * ((static_cast<int>(blockIdx.x) - first) * kThreads + static_cast<int>(threadIdx.x)),
              stride = V * (static_cast<int>(gridDim.x) - first) * kThreads,
              last_run = first_run + (static_cast<int>(a.width) - 1 - first_run + stride) / stride * stride - stride;
    Cursor cursor(a.segments, last_run);
    begin_kernel();
    if (!a.slices) {
        stream_update<V>(a, k, last_run, stride, cursor, false, shared);
        return;
    }
    if (blockIdx.x == 0)
        report_step(a, k, shared);
    else
        stream_update<V>(a, k, last_run, stride, cursor, blockIdx.x == 1 && threadIdx.x == 0, shared);
    close_when_last(a, &last_block);
}

__global__ void count_step_kernel(States state, Groups groups, std::uint32_t scale_interval, int members) {
    begin_kernel();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < members * groups.count) count_step(state, groups, scale_interval, i);
}

bool takes_quads(const Bound& b) {
    using namespace optimizer;
    return b[params].cols % 4 == 0 && quads(b[params]) && quads(b[grads]) && quads(b[m]) && quads(b[v]) && quads(b[copy16]);
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
    const auto members = static_cast<unsigned>(op.k);
    Kernels steps;
    if (op.cols > 0)
        steps.push_back(make_launch(c, takes_quads(b) ? update_kernel<4> : update_kernel<1>,
                                    dim3(update_blocks(c, op.cols, members), members), dim3(kThreads), 0, a));
    steps.push_back(make_launch(c, count_step_kernel, dim3(blocks_for(s.k * a.groups.count, 64)), dim3(64), 0, s, a.groups,
                                a.p.scale_interval, s.k));
    return in_order(std::move(steps));
}

Match match_fused_update(const Context&, const Window& records) {
    const std::size_t first = records[0].record->op == &micro_end::kDef ? 1 : 0;
    const OpDef* const last[] = {&grad_norm::kDef, &optimizer::kDef, &metrics_push::kDef};
    if (records.size() < first + std::size(last)) return {};
    for (std::size_t i = 0; i < std::size(last); ++i)
        if (records[first + i].record->op != last[i]) return {};
    const Bound &norm = records[first], &update = records[first + 1];
    const bool fits = takes_quads(update) && update[optimizer::params].count() > 0 &&
                      norm[grad_norm::grads].data == update[optimizer::grads].data;
    return Match::first(fits ? first + std::size(last) : 0);
}

KernelResult make_fused_update(Context& c, std::span<const Bound> records) {
    const auto last = records.last(3);
    const Bound &norm = last[0], &update = last[1];
    DeviceTable blocks_done;
    MILLRACE_LET(a, closing_args(c, records, blocks_done));
    static_assert(kThreads == kNormBlocks);
    const auto members = static_cast<unsigned>(update[optimizer::params].k);
    const unsigned blocks = update_blocks(c, a.width, members);
    MILLRACE_LET(slices, make_norm_slices(c, norm));
    const Operand& grads = update[optimizer::grads];
    const auto rows = skip_zeros(c, grads);
    if (rows) a.rows = FlaggedRows(*rows, grads);
    return in_order({std::move(slices), make_launch(c, update_kernel<4>, dim3(blocks + 1, members), dim3(kThreads), 0, a)},
                    blocks_done, rows);
}

}  // namespace millrace::ops::cuda
