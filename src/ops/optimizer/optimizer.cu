// The global norm of the gradients of all members; clipping and the update, one launch over their arenas.

#include <algorithm>
#include <vector>

#include "ops/cuda/vector.cuh"
#include "ops/optimizer/update.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kThreads = 256;
constexpr int kNormPerMultiprocessor = 6;  ///< blocks of norm_slices_kernel

/// What a sum of squares is made of: a member's elements [begin, end), or `parts` sums that the kernel which wrote them left, of
/// one group, member k's at k * stride.
struct Piece {
    std::int32_t begin, end;
    const float* sums = nullptr;
    std::int32_t parts = 0, stride = 0;
};
struct Pieces {
    const Piece* data;  ///< in ascending order
    int count;
};

/// The squares of elements [i, end) in steps of a block, of trainable groups alone.
__device__ float sum_of_range(const float* g, std::int64_t i, std::int64_t end, bool quads, const GroupState* group,
                              Cursor& cursor, const Segments& segments) {
    // Quads under way in a thread: with one, a slice of a large model takes a dozen rounds to L2.
    constexpr int kAtOnce = 4, kStep = 4 * kThreads;
    float sum = 0;
    while (i < end) {
        cursor.move(segments, i);
        const bool counts = group[cursor.now.group].trainable != 0;
        const std::int64_t stop = min(end, std::int64_t{cursor.now.end});
        float with = sum;  // chosen afterwards: the gradients need not wait for the flag
        if (quads) {
            while (i < stop) {
                const int left = static_cast<int>(stop - i);
                float4 v[kAtOnce];
#pragma unroll
                for (int q = 0; q < kAtOnce; ++q)
                    v[q] = q * kStep < left ? *reinterpret_cast<const float4*>(g + i + q * kStep) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (const float4& f : v) with += f.x * f.x + f.y * f.y + (f.z * f.z + f.w * f.w);
                i += kStep * min(kAtOnce, (left + kStep - 1) / kStep);  // no further: the next segment goes on there
            }
        } else {
            for (; i < stop; i += kThreads) with += g[i] * g[i];
        }
        if (counts) sum = with;
    }
    return sum;
}

/// kNormBlocks sums of a member's pieces, block b those from number b on in steps of gridDim.x. The pieces and the order of their
/// sums do not depend on the members. All members go from their first elements to their last, as the update goes back.
__global__ void __launch_bounds__(kThreads, blocks_at_once(kThreads, kNormPerMultiprocessor))
    norm_slices_kernel(Mat<const float> grads, Mat<float> scratch, bool quads, Groups groups, Segments segments, Pieces pieces) {
    __shared__ float sums[kNormBlocks][kThreads / 32];
    const int k = blockIdx.y, thread = static_cast<int>(threadIdx.x);
    const auto first_piece = [&](int number) { return number * pieces.count / kNormBlocks; };
    Cursor cursor(segments, pieces.data[first_piece(blockIdx.x)].begin);
    begin_kernel();
    const GroupState* group = groups.row(k);
    int count = 0;
    for (int number = blockIdx.x; number < kNormBlocks; number += gridDim.x, ++count) {
        float sum = 0;
        for (int p = first_piece(number); p < first_piece(number + 1); ++p) {
            const Piece piece = pieces.data[p];
            if (piece.sums == nullptr) {
                const std::int64_t i = piece.begin + (quads ? 4 : 1) * thread;
                sum += sum_of_range(grads.row(k, 0, 0), i, piece.end, quads, group, cursor, segments);
                continue;
            }
            cursor.move(segments, piece.begin);
            if (group[cursor.now.group].trainable != 0)
#pragma unroll 4
                for (int i = thread; i < piece.parts; i += kThreads) sum += piece.sums[std::int64_t{k} * piece.stride + i];
        }
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (threadIdx.x % 32 == 0) sums[count][threadIdx.x / 32] = sum;
    }
    __syncthreads();  // once for all sums: between them no warp waits for another
    if (thread >= count) return;
    float total = 0;
    for (const float sum : sums[thread]) total += sum;
    scratch.row(k, 0, 0)[blockIdx.x + threadIdx.x * gridDim.x] = total;
}

/// As many blocks of a member as run at once, each with as many sums.
unsigned norm_blocks(const Context& c, unsigned members) {
    const unsigned most = std::max(1u, static_cast<unsigned>(kNormPerMultiprocessor * c.multiprocessors) / members);
    return blocks_for(kNormBlocks, static_cast<int>(blocks_for(kNormBlocks, static_cast<int>(most))));
}

/// The sums that were left of a gradient which begins at `at`, one piece for neighbouring matrices of one segment. A matrix of
/// several segments is read: its sums are not kept apart by segment.
void append_left(const GradientSquares& left, std::int64_t at, const std::vector<Segment>& segments, std::vector<Piece>& pieces) {
    const Operand& o = left.gradient;
    const std::int64_t size = std::int64_t{o.rows} * o.cols;
    const int parts = left.parts / o.g;  // of a matrix; kernels leave them in the order of the matrices
    auto segment = segments.begin();
    for (int g = 0, next = 0; g < o.g; g = std::max(next, g + 1)) {
        const std::int64_t begin = at + g * size;
        while (segment->end <= begin) ++segment;
        for (next = g; next < o.g && at + (next + 1) * size <= segment->end;) ++next;
        if (next > g)
            pieces.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(at + next * size),
                              static_cast<const float*>(left.sums) + g * parts, (next - g) * parts, left.parts});
    }
}

/// The whole arena without what was left of `squares` in kNormBlocks slices, and that.
std::vector<Piece> pieces_of(const Operand& grads, const std::vector<std::shared_ptr<GradientSquares>>& squares,
                             const std::vector<Segment>& segments) {
    std::vector<Piece> pieces;
    for (const auto& one : squares)
        if (const std::int64_t at = place_in(one->gradient, grads); at >= 0) append_left(*one, at, segments, pieces);
    std::ranges::sort(pieces, {}, &Piece::begin);
    std::int64_t remaining = grads.cols;
    for (const Piece& piece : pieces) remaining -= piece.end - piece.begin;
    // Where little is to be read, each piece costs a block its latency: no shorter ones than a block reads at once.
    const std::int64_t equal = (remaining + 4 * kNormBlocks - 1) / (4 * kNormBlocks) * 4,
                       slice = pieces.empty() ? equal : std::max<std::int64_t>(equal, 16 * kThreads);
    std::vector<Piece> all;
    std::int64_t at = 0;
    const auto read_until = [&](std::int64_t end) {
        for (; at < end; at = std::min(at + slice, end))
            all.push_back({static_cast<std::int32_t>(at), static_cast<std::int32_t>(std::min(at + slice, end))});
    };
    for (const Piece& piece : pieces) {
        read_until(piece.begin);
        all.push_back(piece);
        at = piece.end;
    }
    read_until(grads.cols);
    return all;
}

__global__ void norm_finish_kernel(Mat<const float> scratch, States state) {
    __shared__ float shared[32];
    begin_kernel();
    MemberState m = state[blockIdx.x];
    finish_norm(m, scratch.row(blockIdx.x, 0, 0), shared);
    if (threadIdx.x == 0) state[blockIdx.x] = m;
}

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

base::Result<std::vector<Segment>> read_segments(const Context& c, const Operand& o) {
    std::vector<Segment> segments(static_cast<std::size_t>(o.rows));
    const std::size_t bytes = segments.size() * sizeof(Segment);
    // By address: that of a program which is only measured is the host's.
    cudaError_t code = cudaMemcpyAsync(segments.data(), o.data, bytes, cudaMemcpyDefault, c.stream);
    if (code == cudaSuccess) code = cudaStreamSynchronize(c.stream);
    MILLRACE_TRY(check_cuda(code, "reading the segments of groups"));
    return segments;
}

KernelResult make_norm_slices(Context& c, const Bound& b) {
    const Operand& g = b[grad_norm::grads];
    const auto members = static_cast<unsigned>(g.k);
    MILLRACE_LET(segments, read_segments(c, b[grad_norm::segments]));
    const auto squares = current_squares(c);
    const std::vector<Piece> pieces = pieces_of(g, squares, segments);
    if (pieces.empty()) return make_zeros(c, b[grad_norm::scratch]);
    MILLRACE_LET(table, upload_table(c, pieces.data(), pieces.size() * sizeof(Piece)));
    const bool in_quads = quads(g) && g.cols % 4 == 0;
    const unsigned blocks = norm_blocks(c, members);
    const Operand &scratch = b[grad_norm::scratch], &groups = b[grad_norm::groups], &table_of_segments = b[grad_norm::segments];
    const Pieces all{static_cast<const Piece*>(table), static_cast<int>(pieces.size())};
    auto kernel = make_launch(c, norm_slices_kernel, dim3(blocks, members), dim3(kThreads), 0, g, scratch, in_quads, groups,
                              table_of_segments, all);
    return in_order({std::move(kernel)}, table, squares);
}

KernelResult make_grad_norm(Context& c, const Bound& b) {
    MILLRACE_LET(slices, make_norm_slices(c, b));
    const Operand& s = b[grad_norm::state];
    return in_order(
        {std::move(slices), make_launch(c, norm_finish_kernel, dim3(s.k), dim3(kNormBlocks), 0, b[grad_norm::scratch], s)});
}

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
