// The way back through a whole layer of attention and feed-forward, both with a residual and a norm behind it, over short
// sequences: one block per sequence, group and member, then one launch for the sums over sequences.

#include "ops/cuda/context.h"
#include "ops/dense/column_sum.cuh"
#include "ops/sequence/backward.cuh"
#include "ops/sequence/chain.h"

namespace millrace::ops::cuda {
namespace {

using namespace layer_back;
using tensor::Operand;

struct NormArgs {
    Mat<const bf16> x;
    Mat<const float> gamma, mean, inv_std;
    Mat<bf16> dx;
};

struct LayerArgs {
    Mat<const bf16> dy;
    NormArgs norm2, norm1;
    Mat<const bf16> narrow, widen, project, attend;  ///< weights of linear2, linear1, out_proj and in_proj
    Mat<const bf16> saved, qkv;
    Mat<const std::int32_t> lengths;
    Mat<const float> logsumexp;
    Mat<bf16> dz, dqkv, dx;  ///< of linear1, of in_proj; the gradient of the layer's input
    float* partial;          ///< [members * groups, sequences, kSums], of the columns that Sums names
    float scale;
    int groups, positions;
    bool add_dx, early;
};

/// Where each parameter's sums lie in a row of `partial`.
template <int kInner>
struct SumColumns {
    static constexpr int norm2 = 0, widen = norm2 + kNormSums, norm1 = widen + kInner, attend = norm1 + kNormSums;
    static constexpr int count = attend + kProjected;
};

/// Shared memory: what a block holds, some of it one after the other.
template <int kInner>
struct Room {
    alignas(16) bf16 d[kRows * kPitch<kWidth>];      ///< dy, then the gradient that is under way
    alignas(16) bf16 inner[kRows * kPitch<kInner>];  ///< saved, then dz of linear1, then column sums of dqkv
    alignas(16) bf16 x1[kHeads * kHeadRows];         ///< what norm1 normalised, then the gradient of attention's output by head
    alignas(16) bf16 heads[3 * kHeads * kHeadRows];  ///< queries, keys, values by head
    alignas(16) bf16 dqkv[kRows * kPitch<kProjected>];  ///< before that: Early
    alignas(16) float4 shares[8 * kThreads];
    float mean2[kRows], inv2[kRows], mean1[kRows], inv1[kRows];
    float logsumexp[kHeads * kRows], deltas[kHeads * kRows];

    /// What is done with before the gradients of attention are found.
    struct Early {
        alignas(16) bf16 x2[kRows * kPitch<kWidth>];
        alignas(16) float norm[kWarps * kNormSums];
        float widen[2 * kInner];
    };
    static_assert(sizeof(Early) <= sizeof(bf16) * kRows * kPitch<kProjected>);
    static_assert(4 * kProjected * sizeof(float) <= sizeof(bf16) * kRows * kPitch<kInner>);
    static_assert(kRows * kPitch<kWidth> <= kHeads * kHeadRows);
    [[nodiscard]] __device__ Early& early() { return *reinterpret_cast<Early*>(dqkv); }
};

/// The block's matrix and rows.
struct Place {
    int k, g, filled, rows;
    std::int64_t row;
    float* sums;
    template <class T>
    [[nodiscard]] __device__ T* of(const Mat<T>& m) const {
        return m.row(k, g, row);
    }
};

/// Begins all copies, in the order in which they are needed, one commit each: dy and norm2, saved, norm1, attention.
template <int kInner>
__device__ void stage_layer(const LayerArgs& a, const Place& at, Room<kInner>& room) {
    const auto stage_floats = [&](const Mat<const float>& from, float* to, int first) {
        const int row = static_cast<int>(threadIdx.x) - first;
        if (row >= 0 && row < kRows) copy4(shared_address(to + row), at.of(from) + row * from.stride_row, row < at.rows);
    };
    stage<kWidth>(at.of(a.dy), a.dy.stride_row, at.rows, room.d);
    stage<kWidth>(at.of(a.norm2.x), a.norm2.x.stride_row, at.rows, room.early().x2);
    stage_floats(a.norm2.mean, room.mean2, 0);
    stage_floats(a.norm2.inv_std, room.inv2, kRows);
    stage_floats(a.norm1.mean, room.mean1, 2 * kRows);
    stage_floats(a.norm1.inv_std, room.inv1, 3 * kRows);
    commit_copies();
    stage<kInner>(at.of(a.saved), a.saved.stride_row, at.rows, room.inner);
    commit_copies();
    stage<kWidth>(at.of(a.norm1.x), a.norm1.x.stride_row, at.rows, room.x1);
    commit_copies();
    // With groups the operands of attention have them as members; their Mats are laid as those of the other records here.
    stage<kProjected>(at.of(a.qkv), a.qkv.stride_row, at.filled, [&](int row, int column) {
        return room.heads + column / kHeadWidth * kHeadRows + row * kHeadStride + column % kHeadWidth;
    });
    const int row = static_cast<int>(threadIdx.x) / kHeads, head = static_cast<int>(threadIdx.x) % kHeads;
    copy4(shared_address(room.logsumexp + head * kRows + row), at.of(a.logsumexp) + row * a.logsumexp.stride_row + head,
          row < at.filled);
    commit_copies();
}

/// Warps' sums in order.
__device__ void put_norm_sums(const float* scratch, float* to) {
    for (int c = threadIdx.x; c < kNormSums; c += kThreads) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += scratch[w * kNormSums + c];
        to[c] = sum;
    }
}

__device__ void load_gamma(const NormArgs& norm, const Place& at, float (&gamma)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) gamma[i] = __ldcg(norm.gamma.row(at.k, at.g, 0) + 4 * lane_of() + i);
}

/// From the gradient of linear1's output (`product`) to that before its activation, in the place of `saved`.
template <int kInner>
__device__ void through_gelu(const RowsProduct<kWidth, kInner>& product, const LayerArgs& a, const Place& at,
                             Room<kInner>& room) {
    using Narrow = RowsProduct<kWidth, kInner>;
    const int column = Narrow::column();
    float totals[8] = {};
#pragma unroll
    for (int m = 0; m < Narrow::kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = Narrow::row(m, half);
            bf16* place = room.inner + row * kPitch<kInner> + column;
            float d[8], u[8];
            product.values(m, half, d);
            load_run<8>(place, u);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float value, slope;
                gelu_and_slope(u[i], value, slope);
                d[i] = rounded(d[i], place) * slope;
                totals[i] += d[i];
            }
            store_run<8>(place, d);
            if (row < at.rows) store_run<8>(at.of(a.dz) + row * a.dz.stride_row + column, d);
        }
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int d = 4; d < 32; d *= 2) totals[i] += __shfl_xor_sync(0xffffffffu, totals[i], d);
    if (lane_of() < 4) {
#pragma unroll
        for (int i = 0; i < 8; ++i) room.early().widen[Narrow::share() * kInner + column + i] = totals[i];
    }
}

/// room.dqkv to its place, and each of four threads' sums over its rows to `scratch` [4, kProjected].
__device__ void put_dqkv(const bf16* from, const Mat<bf16>& dqkv, const Place& at, float* scratch) {
    constexpr int kVectors = kProjected / 8, kLanes = 4;
    const int first = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    if (first >= kLanes) return;
    float totals[8] = {};
#pragma unroll 4
    for (int row = first; row < kRows; row += kLanes) {
        const uint4 eight = *reinterpret_cast<const uint4*>(from + row * kPitch<kProjected> + column);
        if (row < at.rows) *reinterpret_cast<uint4*>(at.of(dqkv) + row * dqkv.stride_row + column) = eight;
        float v[8];
        spread(eight, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) totals[i] += v[i];
    }
    store_run<8>(scratch + first * kProjected + column, totals);
}

template <int kInner>
__device__ void attention_back(const LayerArgs& a, Room<kInner>& room) {
    const int head = warp_of() / 2, column = kHeadWidth * head;
    const Head own{room.heads + head * kHeadRows,
                   room.heads + (kHeads + head) * kHeadRows,
                   room.heads + (2 * kHeads + head) * kHeadRows,
                   room.x1 + head * kHeadRows,
                   room.logsumexp + head * kRows,
                   room.deltas + head * kRows};
    // Of four tiles of rows the first sees least: with 0 and 3, or 1 and 2, both warps of a head have as much to do.
    const auto tile_of = [](int i) { return i == 0 ? warp_of() % 2 : 3 - warp_of() % 2; };
#pragma unroll 1
    for (int i = 0; i < 2; ++i) query_back(own, tile_of(i), a.scale, room.dqkv + 16 * tile_of(i) * kPitch<kProjected> + column);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        bf16* to = room.dqkv + 16 * tile_of(i) * kPitch<kProjected> + column;
        key_back(own, tile_of(i), a.scale, to + kWidth, to + 2 * kWidth);
    }
}

template <int kInner>
__global__ void __launch_bounds__(kThreads, 1) layer_backward_kernel(const __grid_constant__ LayerArgs a) {
    extern __shared__ uint4 memory[];
    Room<kInner>& room = *reinterpret_cast<Room<kInner>*>(memory);
    using Columns = SumColumns<kInner>;
    Place at;
    at.k = static_cast<int>(blockIdx.z) / a.groups;
    at.g = static_cast<int>(blockIdx.z) % a.groups;
    at.rows = a.positions;
    at.row = std::int64_t{blockIdx.x} * a.positions;
    at.sums = a.partial + (std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x) * Columns::count;
    const auto weights_of = [&](const Mat<const bf16>& w) { return w.row(at.k, at.g, 0); };

    RowsProduct<kWidth, kInner> narrow;
    if (a.early) narrow.begin(weights_of(a.narrow), a.narrow.stride_row);
    begin_kernel();
    at.filled = min(max(*a.lengths.row(at.k, at.g, blockIdx.x), 0), a.positions);
    stage_layer(a, at, room);
    if (!a.early) narrow.begin(weights_of(a.narrow), a.narrow.stride_row);
    float gamma[4];
    load_gamma(a.norm2, at, gamma);

    await_copies<3>();
    __syncthreads();
    norm_back(room.d, {room.early().x2, room.mean2, room.inv2}, gamma, at.of(a.norm2.dx), a.norm2.dx.stride_row, at.rows,
              room.early().norm);
    await_copies<2>();
    __syncthreads();
    put_norm_sums(room.early().norm, at.sums + Columns::norm2);
    narrow.multiply(room.d);
    narrow.join(room.shares);
    RowsProduct<kInner, kWidth> widen;
    widen.begin(weights_of(a.widen), a.widen.stride_row);
    through_gelu(narrow, a, at, room);

    await_copies<1>();
    __syncthreads();
    for (int c = threadIdx.x; c < kInner; c += kThreads) {
        const float* sums = room.early().widen + c;
        at.sums[Columns::widen + c] = RowsProduct<kWidth, kInner>::kShares == 2 ? sums[0] + sums[kInner] : sums[0];
    }
    widen.multiply(room.inner);
    widen.join(room.shares);
    RowsProduct<kWidth, kWidth> project;
    project.begin(weights_of(a.project), a.project.stride_row);
    load_gamma(a.norm1, at, gamma);
#pragma unroll
    for (int m = 0; m < 2; ++m)
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
    norm_back(room.d, {room.x1, room.mean1, room.inv1}, gamma, at.of(a.norm1.dx), a.norm1.dx.stride_row, at.rows,
              room.early().norm);
    await_copies<0>();
    __syncthreads();
    put_norm_sums(room.early().norm, at.sums + Columns::norm1);
    project.multiply(room.d);
    project.join(room.shares);
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = project.row(m, half), column = project.column();
            float d[8];
            project.values(m, half, d);
            bf16* place = room.x1 + column / kHeadWidth * kHeadRows + row * kHeadStride + column % kHeadWidth;
            if (row < at.filled)
                store_run<8>(place, d);
            else
                *reinterpret_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
        }
    __syncthreads();
    attention_back(a, room);
    RowsProduct<kProjected, kWidth> attend;
    attend.begin(weights_of(a.attend), a.attend.stride_row);
    __syncthreads();
    auto* columns = reinterpret_cast<float*>(room.inner);
    put_dqkv(room.dqkv, a.dqkv, at, columns);
    attend.multiply(room.dqkv);
    attend.join(room.shares);
    for (int c = threadIdx.x; c < kProjected; c += kThreads)
        at.sums[Columns::attend + c] =
            columns[c] + columns[kProjected + c] + (columns[2 * kProjected + c] + columns[3 * kProjected + c]);
#pragma unroll
    for (int m = 0; m < 2; ++m)
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

template <int kInner>
KernelResult make_chain(Context& c, const LayerChain& chain) {
    namespace at = attention_backward;
    const Bound& attention = chain.attention;
    const int groups = chain.groups, sequences = attention[at::lengths].rows;
    const int depth = chain.members * groups;
    using Columns = SumColumns<kInner>;
    const auto floats = static_cast<std::size_t>(depth) * static_cast<std::size_t>(sequences) * Columns::count;
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
    const auto kernel = layer_backward_kernel<kInner>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    Operand sums{};
    sums.g = groups;
    sums.cols = Columns::count;
    auto made = make_kernel([=, stream = c.stream, targets = sum_targets<kInner>(chain)] {
        launch(kernel, dim3(static_cast<unsigned>(sequences), 1, static_cast<unsigned>(depth)), dim3(kThreads),
               sizeof(Room<kInner>), stream, a);
        column_sums::launch_final(stream, static_cast<float*>(partial), targets, sums, 0, static_cast<unsigned>(depth),
                                  sequences);
    });
    made->keeps_inner = true;
    return KernelResult(std::move(made));
}

}  // namespace

std::size_t match_sequence_backward(const Context& c, std::span<const Bound> records) {
    const bool fits = c.shared_limit >= sizeof(Room<kMostInner>) && is_layer_chain(records);
    return fits ? LayerChain::kRecords : 0;
}

KernelResult make_sequence_backward(Context& c, std::span<const Bound> records) {
    const LayerChain chain(records);
    return chain.widen[dense_backward::dz].cols == kMostInner ? make_chain<kMostInner>(c, chain) : make_chain<128>(c, chain);
}

}  // namespace millrace::ops::cuda
