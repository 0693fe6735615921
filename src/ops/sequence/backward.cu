// The way back through a whole layer of attention and feed-forward, both with a residual and a norm behind it, over short
// sequences: one block per sequence, group and member (or two, with half of the positions each), then one launch for the sums
// over sequences.

#include "ops/cuda/late_sums.h"
#include "ops/norm/layernorm.h"
#include "ops/sequence/backward_phases.cuh"
#include "ops/sequence/sequence.h"

namespace millrace::ops::cuda {
namespace {

using namespace layer_back;
using tensor::Operand;

/// The block's rows; `filled` is not known yet.
template <class T, int kParts>
__device__ __forceinline__ Place place_of(const LayerArgs<T>& a) {
    Place at;
    const int matrix = static_cast<int>(blockIdx.z) / kParts;
    at.rank = static_cast<int>(blockIdx.z) % kParts;
    at.k = matrix / a.groups;
    at.g = matrix % a.groups;
    at.first = at.rank * kOwn<kParts>;
    at.rows = min(max(a.positions - at.first, 0), kOwn<kParts>);
    at.base = static_cast<int>(blockIdx.x) * a.positions;
    at.sums = a.partial + ((std::int64_t{matrix} * gridDim.x + blockIdx.x) * kParts + at.rank) * sum_count(a.widths);
    return at;
}

/// Begins to copy what norm n normalised.
template <class T, int kParts>
__device__ __forceinline__ void stage_x(const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room, int n) {
    stage<kParts, kOwn<kParts>>(at.of(a.norms[n].x), a.norms[n].x.stride_row, at.rows, room.x(n));
}
/// Begins to copy queries, keys and values.
template <class T, int kParts>
__device__ __forceinline__ void stage_heads(const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room) {
#pragma unroll 1
    for (int part = 0; part < 3; ++part)
        stage<kParts, kRows>(a.qkv.row(at.k, at.g, at.base) + part * kWidth, a.qkv.stride_row, at.filled, room.heads(part));
}

/// Begins to copy what the block reads, and waits for what the first norm needs.
template <bool kDrops, class T, int kParts>
__device__ __forceinline__ void stage_inputs(const LayerArgs<T>& a, Place& at, Room<T, kParts>& room) {
    const int length = *a.lengths.row(at.k, at.g, static_cast<int>(blockIdx.x));
    stage<kParts, kOwn<kParts>>(at.of(a.dy), a.dy.stride_row, at.rows, room.dy());
    stage_x(a, at, room, 0);
    const int row = static_cast<int>(threadIdx.x) % kRows, stat = static_cast<int>(threadIdx.x) / kRows;
    if (row < kOwn<kParts> && stat < 4) {
        const Matrices<const float>& from = stat % 2 == 0 ? a.norms[stat / 2].mean : a.norms[stat / 2].inv_std;
        copy4(shared_address(room.stats() + stat * kOwn<kParts> + row), at.of(from) + row * from.stride_row, row < at.rows);
    }
    if constexpr (kDrops) sequence::stage_state(a.state, at.k, &room.state);
    commit_copies();
#pragma unroll 1
    for (int part = 0; part < a.widths; ++part)
        stage<kParts, kOwn<kParts>>(at.of(a.saved) + part * kWidth, a.saved.stride_row, at.rows,
                                    room.inner() + part * room.kInnerStep);
    at.filled = min(max(length, 0), a.positions);
    const int position = static_cast<int>(threadIdx.x) / kHeads, head = static_cast<int>(threadIdx.x) % kHeads;
    if (position < kRows)
        copy4(shared_address(room.levels + head * kRows + position), a.logsumexp.row(at.k, at.g, at.base + position) + head,
              position < at.filled);
    if constexpr (kParts > 1) {
        stage_x(a, at, room, 1);
        stage_heads(a, at, room);
    }
    commit_copies();
    await_copies<kSlots - 2>();
    __syncthreads();
}

/// `parts` tiles, `step` elements apart, to global memory, and their sums over rows.
template <class T, int kParts>
__device__ __forceinline__ void put_gradients(const Place& at, const T* tile, int step, int parts, const Matrices<T>& to,
                                              float* sums) {
    __syncthreads();
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
        copy_out<kParts>(tile + part * step, at.of(to) + part * kWidth, to.stride_row, at.rows);
        sum_columns<kParts>(tile + part * step, sums + part * kWidth);
    }
}

/// What comes before the product of a task.
template <bool kDrops, class T, int kParts>
__device__ __forceinline__ void prepare(const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room, const Tasks& tasks,
                                        int task, int free_slot) {
    if (task == tasks.widen) {
        put_gradients<T, kParts>(at, room.inner(), room.kInnerStep, a.widths, a.dz, at.sums + kSumWiden);
        if constexpr (kParts == 1) stage_x(a, at, room, 1);
    } else if (task == tasks.attend()) {
        put_gradients<T, kParts>(at, room.heads(0) + at.first * kPitch, room.kTile, 3, a.dqkv, at.sums + kSumAttend);
    } else if (task == 0 || task == tasks.project()) {
        through_norm<kDrops>(a, at, room, task == 0 ? 0 : 1, free_slot);
        if constexpr (kParts == 1) {
            if (task > 0) stage_heads(a, at, room);
        }
    }
}

/// What becomes of the product of a task.
template <bool kDrops, class T, int kParts>
__device__ __forceinline__ void finish(const RowsProduct<T, kParts>& product, const LayerArgs<T>& a, const Place& at,
                                       Room<T, kParts>& room, const Tasks& tasks, int task) {
    if (task < tasks.widen) {
        if constexpr (kParts > 1) {  // a product of one piece has not waited for what was saved
            await_copies<1>();
            __syncthreads();
        }
        put_through_gelu(product, room.inner() + task * room.kInnerStep);
    } else if (task == tasks.project()) {
        if constexpr (kParts > 1) cluster_wait();              // the other block has begun: its memory may be written
        if constexpr (kDrops && kParts == 1) __syncthreads();  // its place is that of what was multiplied
        put_dout(product, a, at, room);
        if (a.add_dx) {
            __syncthreads();  // the product has read what is changed
            add_old<kParts>(a.dx, at, room.residual());
        }
        meet<kParts>();
        attention_back(a, at, room);
    } else {  // the residual's part is what the norm gave
        add_product(product, task == tasks.widen ? room.d() : room.residual());
        __syncthreads();
    }
}

template <class T, int kParts, bool kDrops>
__global__ void __launch_bounds__(kThreads<kParts>, kParts == 1 ? 2 : 1)
    layer_backward_kernel(const __grid_constant__ LayerArgs<T> a) {
    extern __shared__ uint4 memory[];
    auto& room = *reinterpret_cast<Room<T, kParts>*>(memory);
    Place at = place_of<T, kParts>(a);
    const Tasks tasks{a.widths};
    WeightStream<T, kParts> weights{};
    weights.begin(a, at, 0);
#pragma unroll(kParts == 1 ? 2 : 1)
    for (int i = 0; i < kSlots - 1; ++i)  // weights are older than what ran before this kernel
        weights.fetch(a, at, weights.place(room), i % weights.kPieces);
    if constexpr (kParts > 1) cluster_arrive();
    begin_kernel();
    stage_inputs<kDrops>(a, at, room);
    RowsProduct<T, kParts> product;
    // One loop for all products keeps the code small.
#pragma unroll 1
    for (int task = 0; task <= tasks.attend(); ++task) {
        prepare<kDrops>(a, at, room, tasks, task, weights.slot);
        const T* left = task == tasks.widen       ? room.inner()
                        : task == tasks.project() ? (kDrops ? room.d() : room.residual())
                        : task == tasks.attend()  ? room.heads(0) + at.first * kPitch
                        : kDrops                  ? room.dy()
                                                  : room.d();
        multiply(product, left, task == tasks.widen ? room.kInnerStep : room.kTile, tasks.summed(task), a, at, room, weights);
        finish<kDrops>(product, a, at, room, tasks, task);
    }
    copy_out<kParts>(room.residual(), at.of(a.dx), a.dx.stride_row, at.rows);
}

template <class T>
NormArgs<T> norm_args(const Bound& b, const Bound& below) {
    using namespace layernorm_backward;
    return {b[x], b[gamma], b[mean], b[inv_std], below[dense_backward::dz]};
}

/// The sums over `chunks` sequences or halves of them.
std::vector<ChunkSums> sums_of(const LayerChain& chain, const DeviceTable& partial, int chunks, int columns) {
    std::vector<ChunkSums> sums;
    const auto add = [&](const Bound& b, int slot, int from) {
        sums.push_back({b[slot], static_cast<float*>(partial) + from, chunks, columns, b.accumulates(slot), partial});
    };
    const auto add_norm = [&](const Bound& norm, const Bound& below, int from) {
        add(norm, layernorm_backward::dgamma, from);
        add(norm, layernorm_backward::dbeta, from + kWidth);
        add(below, dense_backward::dbias, from + 2 * kWidth);
    };
    add_norm(chain.norm2, chain.narrow, kSumNorm2);
    add(chain.widen, dense_backward::dbias, kSumWiden);
    add_norm(chain.norm1, chain.project, kSumNorm1);
    add(chain.attend, dense_backward::dbias, kSumAttend);
    return sums;
}

template <class T, int kParts, bool kDrops>
KernelResult make_chain(Context& c, const LayerChain& chain) {
    namespace at = attention_backward;
    const Bound& attention = chain.attention;
    const int groups = chain.groups, sequences = attention[at::lengths].rows;
    const int depth = chain.members * groups;
    const int widths = chain.widen[dense_backward::dz].cols / kWidth, columns = sum_count(widths);
    const auto floats =
        static_cast<std::size_t>(depth * kParts) * static_cast<std::size_t>(sequences) * static_cast<std::size_t>(columns);
    MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
    LayerArgs<T> a{};
    a.dy = chain.norm2[layernorm_backward::dy];
    a.norms[0] = norm_args<T>(chain.norm2, chain.narrow);
    a.norms[1] = norm_args<T>(chain.norm1, chain.project);
    a.weights[0] = chain.narrow_product[linear_dgrad::w];
    a.weights[1] = chain.widen_product[linear_dgrad::w];
    a.weights[2] = chain.project_product[linear_dgrad::w];
    a.weights[3] = chain.attend_product[linear_dgrad::w];
    a.saved = chain.widen[dense_backward::saved];
    a.dz = chain.widen[dense_backward::dz];
    a.qkv = grouped(attention[at::qkv], groups);
    a.out = grouped(attention[at::out], groups);
    a.lengths = grouped(attention[at::lengths], groups);
    a.logsumexp = grouped(attention[at::logsumexp], groups);
    a.dqkv = grouped(attention[at::dqkv], groups);
    a.dx = chain.attend_product[linear_dgrad::dx];
    a.partial = static_cast<float*>(partial);
    a.scale = 1 / std::sqrt(static_cast<float>(kHeadWidth));
    a.groups = groups;
    a.positions = chain.positions;
    a.widths = widths;
    a.add_dx = chain.norm1.accumulates(layernorm_backward::dresidual);
    a.dropout[0] = sequence::dropout_of(chain.narrow);
    a.dropout[1] = sequence::dropout_of(chain.project);
    a.state = chain.narrow[dense_backward::state];
    const auto kernel = layer_backward_kernel<T, kParts, kDrops>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    auto made = make_kernel([=, stream = c.stream] {
        const dim3 grid(static_cast<unsigned>(sequences), 1, static_cast<unsigned>(depth * kParts));
        launch_clusters(kernel, grid, dim3(kThreads<kParts>), kParts, sizeof(Room<T, kParts>), stream, a);
    });
    return with_sums(c, std::move(made), sums_of(chain, partial, sequences * kParts, columns));
}

/// Two blocks take a sequence where all of them run at once. Pinned runs do not look at what stands beside a sequence.
bool in_halves(const Context& c, const LayerChain& chain) {
    const std::int64_t sequences = std::int64_t{chain.attention[attention_backward::lengths].rows} * chain.members * chain.groups;
    return dependent_launches() && !c.deterministic && c.shared_limit >= sizeof(Room<bf16, 2>) && chain.positions > kRows / 2 &&
           2 * sequences <= c.multiprocessors;
}

}  // namespace

Match match_sequence_backward(const Context& c, const Window& records) {
    return c.shared_limit >= sizeof(Room<bf16, 1>) ? match_layer_chain(records) : Match{};
}

KernelResult make_sequence_backward(Context& c, std::span<const Bound> records) {
    const LayerChain chain(records);
    const bool drops = chain.narrow[dense_backward::state].present();
    return by_half(chain.widen[dense_backward::dz].dtype, [&]<class T>(T) {
        if (in_halves(c, chain)) return drops ? make_chain<T, 2, true>(c, chain) : make_chain<T, 2, false>(c, chain);
        return drops ? make_chain<T, 1, true>(c, chain) : make_chain<T, 1, false>(c, chain);
    });
}

}  // namespace millrace::ops::cuda
