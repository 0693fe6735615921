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
    const auto weights_of = [&](const Mat<const bf16>& w) { return w.row(at.k, at.g, 0); };

    if constexpr (kParts > 1) cluster_arrive();
    RowsProduct<kOwn, kWidth, kInner> narrow;
    if (a.early) narrow.begin(weights_of(a.narrow), a.narrow.stride_row);
    begin_kernel();
    at.filled = min(max(*a.lengths.row(at.k, at.g, blockIdx.x), 0), a.positions);
    stage_layer(a, at, room);
    if (!a.early) narrow.begin(weights_of(a.narrow), a.narrow.stride_row);
    float gamma[4];
    load_gamma(a.norm2, at, gamma);

    await_copies<3>();
    __syncthreads();
    norm_back<kOwn>(room.d, {room.early().x2, room.mean2, room.inv2}, gamma, at.of(a.norm2.dx), a.norm2.dx.stride_row, at.rows,
                    room.early().norm);
    await_copies<2>();
    __syncthreads();
    put_norm_sums(room.early().norm, at.sums + Columns::norm2);
    narrow.multiply(room.d);
    narrow.join(room.shares);
    RowsProduct<kOwn, kInner, kWidth> widen;
    widen.begin(weights_of(a.widen), a.widen.stride_row);
    through_gelu(narrow, a, at, room);

    await_copies<1>();
    __syncthreads();
    for (int c = threadIdx.x; c < kInner; c += kThreads) {
        const float* sums = room.early().widen + c;
        at.sums[Columns::widen + c] = narrow.kShares == 2 ? sums[0] + sums[kInner] : sums[0];
    }
    widen.multiply(room.inner);
    widen.join(room.shares);
    RowsProduct<kOwn, kWidth, kWidth> project;
    project.begin(weights_of(a.project), a.project.stride_row);
    load_gamma(a.norm1, at, gamma);
#pragma unroll
    for (int m = 0; m < widen.kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // the residual's part is what norm2 gave linear2
            bf16* place = room.d + widen.row(m, half) * kPitch<kWidth> + widen.column();
            float d[8], more[8];
            load_run<8>(place, d);
            widen.values(m, half, more);
#pragma unroll
            for (int i = 0; i < 8; ++i) d[i] += more[i];
            store_run<8>(place, d);
        }
    __syncthreads();
    norm_back<kOwn>(room.d, {room.x1, room.mean1, room.inv1}, gamma, at.of(a.norm1.dx), a.norm1.dx.stride_row, at.rows,
                    room.early().norm);
    await_copies<0>();
    __syncthreads();
    put_norm_sums(room.early().norm, at.sums + Columns::norm1);
    project.multiply(room.d);
    project.join(room.shares);
    if constexpr (kParts > 1) cluster_wait();  // the other block has begun: its memory may be written
    put_douts(project, at, room);
    sequence::meet<kParts>();
    RowsProduct<kOwn, kProjected, kWidth> attend;
    attend.begin(weights_of(a.attend), a.attend.stride_row);
    attention_back(a, at, room);
    __syncthreads();
    auto* columns = reinterpret_cast<float*>(room.inner);
    put_dqkv<kOwn>(room.dqkv, a.dqkv, at, columns);
    attend.multiply(room.dqkv);
    attend.join(room.shares);
    for (int c = threadIdx.x; c < kProjected; c += kThreads)
        at.sums[Columns::attend + c] =
            columns[c] + columns[kProjected + c] + (columns[2 * kProjected + c] + columns[3 * kProjected + c]);
#pragma unroll
    for (int m = 0; m < attend.kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = attend.row(m, half), column = attend.column();
            if (row >= at.rows) continue;
            bf16* place = at.of(a.dx) + row * a.dx.stride_row + column;
            float d[8], more[8];
            load_run<8>(room.d + row * kPitch<kWidth> + column, d);
            if (a.add_dx) {
                load_run<8>(place, more);
#pragma unroll
                for (int i = 0; i < 8; ++i) d[i] = rounded(d[i] + more[i], place);
            }
            attend.values(m, half, more);
#pragma unroll
            for (int i = 0; i < 8; ++i) d[i] += more[i];
            store_run<8>(place, d);
        }
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
    a.norm2 = norm_args(chain.norm2);
    a.norm1 = norm_args(chain.norm1);
    a.narrow = chain.narrow_product[linear_dgrad::w];
    a.widen = chain.widen_product[linear_dgrad::w];
    a.project = chain.project_product[linear_dgrad::w];
    a.attend = chain.attend_product[linear_dgrad::w];
    a.saved = chain.widen[dense_backward::saved];
    a.dz = chain.widen[dense_backward::dz];
    a.qkv = grouped(attention[at::qkv], groups);
    a.lengths = grouped(attention[at::lengths], groups);
    a.logsumexp = grouped(attention[at::logsumexp], groups);
    a.dqkv = grouped(attention[at::dqkv], groups);
    a.dx = chain.attend_product[linear_dgrad::dx];
    a.partial = static_cast<float*>(partial);
    a.scale = 1 / std::sqrt(static_cast<float>(kHeadWidth));
    a.groups = groups;
    a.positions = chain.positions;
    a.add_dx = chain.norm1.accumulates(layernorm_backward::dresidual);
    a.early = c.early;
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
