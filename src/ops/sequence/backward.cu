// The way back through a whole layer of attention and feed-forward, both with a residual and a norm behind it, over short
// sequences: one block per sequence, group and member (or two, with half of the positions each), then one launch for the sums
// over sequences.

#include "ops/cuda/context.h"
#include "ops/dense/column_sum.cuh"
#include "ops/sequence/backward_phases.cuh"
#include "ops/sequence/chain.h"

namespace millrace::ops::cuda {
namespace {

using namespace layer_back;
using tensor::Operand;

template <int kInner, int kParts>
__global__ void __launch_bounds__(kThreads, 1) layer_backward_kernel(const __grid_constant__ LayerArgs a) {
    extern __shared__ uint4 memory[];
    auto& room = *reinterpret_cast<Room<kInner, kParts>*>(memory);
    using Columns = SumColumns<kInner>;
    constexpr int kOwn = kRows / kParts;
    Place at;
    const int matrix = static_cast<int>(blockIdx.z) / kParts;
    at.rank = static_cast<int>(blockIdx.z) % kParts;
    at.k = matrix / a.groups;
    at.g = matrix % a.groups;
    at.first = at.rank * kOwn;
    at.rows = min(max(a.positions - at.first, 0), kOwn);
    at.base = std::int64_t{blockIdx.x} * a.positions;
    at.sums = a.partial + ((std::int64_t{matrix} * gridDim.x + blockIdx.x) * kParts + at.rank) * Columns::count;
    // Products in turn: linear2 back to parts of linear1's output, linear1, out_proj, in_proj. One loop for all keeps the code
    // small.
    constexpr int kWiden = kInner / kWidth, kProject = kWiden + 1, kAttend = kProject + 1;
    RowsProduct<kOwn> product;
    const auto begin_product = [&](int task) {
        const Mat<const bf16>& w = task < kWiden ? a.narrow : task == kWiden ? a.widen : task == kProject ? a.project : a.attend;
        const int summed = task == kWiden ? kInner : task == kAttend ? kProjected : kWidth;
        product.begin(w.row(at.k, at.g, 0) + (task < kWiden ? task * kWidth : 0), static_cast<int>(w.stride_row), summed);
    };
    if constexpr (kParts > 1) cluster_arrive();
    begin_kernel();
    at.filled = min(max(*a.lengths.row(at.k, at.g, blockIdx.x), 0), a.positions);
    stage_layer(a, at, room);
    begin_product(0);
    await_copies<2>();
    auto* columns = reinterpret_cast<float*>(room.inner);
#pragma unroll 1
    for (int task = 0; task <= kAttend; ++task) {
        __syncthreads();
        if (task == 0 || task == kProject) through_norm(a, at, room, task == 0 ? 0 : 1);
        if (task == kAttend) put_dqkv<kOwn>(room.dqkv, a.dqkv, at, columns);
        product.multiply(task == kWiden    ? room.inner
                         : task == kAttend ? room.dqkv
                                           : room.d,
                         task == kWiden    ? kPitch<kInner>
                         : task == kAttend ? kPitch<kProjected>
                                           : kPitch<kWidth>);
        product.join(room.shares);
        Target target{room.d, kPitch<kWidth>, 32, kOwn, kOwn, nullptr};
        if (task < kWiden) {
            target.to = room.early().x2;
        } else if (task == kWiden) {  // the residual's part is what norm2 gave linear2
            target.add = room.d;
        } else if (task == kProject) {  // positions that are not filled get zeros
            target = {room.douts() + at.first * kHeadStride, kHeadStride, kHeadRows, kOwn, at.filled - at.first, nullptr};
            if constexpr (kParts > 1) cluster_wait();  // the other block has begun: its memory may be written
        } else {
            target = {at.of(a.dx), static_cast<int>(a.dx.stride_row), 32, at.rows, kOwn, room.d};
        }
        // Keys of the first block are seen by queries of the second, and not the other way.
        put_product<kParts>(product, target, task == kProject && at.rank == 1);
        if (task == kAttend) break;
        begin_product(task + 1);
        if (task < kWiden) {
            await_copies<1>();
            __syncthreads();
            through_gelu(a, at, room, task * kWidth);
        } else if (task == kWiden) {
            stage<kOwn, kWidth>(at.of(a.out), a.out.stride_row, at.filled - at.first, room.inner);
            commit_copies();
        } else {
            await_copies<0>();
            if (a.add_dx) add_old<kOwn>(a.dx, at, room.d);
            __syncthreads();
            find_deltas(at, room);
            sequence::meet<kParts>();
            attention_back(a, at, room);
        }
    }
    for (int c = threadIdx.x; c < kProjected; c += kThreads)
        at.sums[Columns::attend + c] =
            columns[c] + columns[kProjected + c] + (columns[2 * kProjected + c] + columns[3 * kProjected + c]);
}

NormArgs norm_args(const Bound& b) {
    using namespace layernorm_backward;
    return {b[x], b[gamma], b[mean], b[inv_std], b[dx]};
}

/// An operand of attention as the other records see it: groups that it has as members are groups again.
Operand grouped(Operand o, int groups) {
    if (groups == 1) return o;
    o.g = groups;
    o.stride_g = o.stride_k;
    o.k = 1;
    return o;
}

template <int kInner>
column_sums::Targets sum_targets(const LayerChain& chain) {
    using Columns = SumColumns<kInner>;
    column_sums::Targets targets{};
    const auto add = [&](const Bound& b, int slot, int from) {
        targets.all[targets.count++] = {b[slot], from, b[slot].cols, b.accumulates(slot)};
    };
    const auto add_norm = [&](const Bound& norm, const Bound& below, int from) {
        add(norm, layernorm_backward::dgamma, from);
        add(norm, layernorm_backward::dbeta, from + kWidth);
        add(below, dense_backward::dbias, from + 2 * kWidth);
    };
    add_norm(chain.norm2, chain.narrow, Columns::norm2);
    add(chain.widen, dense_backward::dbias, Columns::widen);
    add_norm(chain.norm1, chain.project, Columns::norm1);
    add(chain.attend, dense_backward::dbias, Columns::attend);
    return targets;
}

template <int kInner, int kParts>
KernelResult make_chain(Context& c, const LayerChain& chain) {
    namespace at = attention_backward;
    const Bound& attention = chain.attention;
    const int groups = chain.groups, sequences = attention[at::lengths].rows;
    const int depth = chain.members * groups;
    using Columns = SumColumns<kInner>;
    const auto floats = static_cast<std::size_t>(depth * kParts) * static_cast<std::size_t>(sequences) * Columns::count;
    MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
    LayerArgs a{};
    a.dy = chain.norm2[layernorm_backward::dy];
    a.norms[0] = norm_args(chain.norm2);
    a.norms[1] = norm_args(chain.norm1);
    a.narrow = chain.narrow_product[linear_dgrad::w];
    a.widen = chain.widen_product[linear_dgrad::w];
    a.project = chain.project_product[linear_dgrad::w];
    a.attend = chain.attend_product[linear_dgrad::w];
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
    a.add_dx = chain.norm1.accumulates(layernorm_backward::dresidual);
    const auto kernel = layer_backward_kernel<kInner, kParts>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    Operand sums{};
    sums.g = groups;
    sums.cols = Columns::count;
    auto made = make_kernel([=, stream = c.stream, targets = sum_targets<kInner>(chain)] {
        const dim3 grid(static_cast<unsigned>(sequences), 1, static_cast<unsigned>(depth * kParts));
        launch_clusters(kernel, grid, dim3(kThreads), kParts, sizeof(Room<kInner, kParts>), stream, a);
        column_sums::launch_final(stream, static_cast<float*>(partial), targets, sums, 0, static_cast<unsigned>(depth),
                                  sequences * kParts);
    });
    made->keeps_inner = true;
    return KernelResult(std::move(made));
}

/// Two blocks take a sequence where all of them run at once. Pinned runs do not look at what stands beside a sequence.
bool in_halves(const Context& c, const LayerChain& chain) {
    const std::int64_t sequences = std::int64_t{chain.attention[attention_backward::lengths].rows} * chain.members * chain.groups;
    return dependent_launches() && !c.deterministic && chain.positions > kRows / 2 && 2 * sequences <= c.multiprocessors;
}

template <int kInner>
KernelResult make_chain(Context& c, const LayerChain& chain) {
    return in_halves(c, chain) ? make_chain<kInner, 2>(c, chain) : make_chain<kInner, 1>(c, chain);
}

}  // namespace

std::size_t match_sequence_backward(const Context& c, std::span<const Bound> records) {
    const bool fits = c.shared_limit >= sizeof(Room<kMostInner, 1>) && is_layer_chain(records);
    return fits ? LayerChain::kRecords : 0;
}

KernelResult make_sequence_backward(Context& c, std::span<const Bound> records) {
    const LayerChain chain(records);
    return chain.widen[dense_backward::dz].cols == kMostInner ? make_chain<kMostInner>(c, chain) : make_chain<128>(c, chain);
}

}  // namespace millrace::ops::cuda
