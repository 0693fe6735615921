#pragma once
// The way back through a layer, step by step: what a block of layer_backward_kernel reads, holds and writes.

#include "ops/sequence/backward.cuh"
#include "ops/sequence/cluster.cuh"

namespace millrace::ops::cuda::layer_back {

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
    float* partial;          ///< [members * groups, sequences * blocks of one, SumColumns::count]
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

/// Shared memory: what a block holds, some of it one after the other. kParts blocks share a sequence.
template <int kInner, int kParts>
struct Room {
    static constexpr int kOwn = kRows / kParts;
    static constexpr int kX1 = kParts == 1 ? 0 : kOwn * kPitch<kWidth>;  ///< the other block's part comes before x1 is done with
    alignas(16) bf16 d[kOwn * kPitch<kWidth>];                           ///< dy, then the gradient that is under way
    alignas(16) bf16 inner[kOwn * kPitch<kInner>];                       ///< saved, then dz of linear1, then column sums of dqkv
    alignas(16) bf16 x1[kX1 + kHeads * kHeadRows];                       ///< what norm1 normalised, then or besides: douts()
    alignas(16) bf16 heads[3 * kHeads * kHeadRows];                      ///< queries, keys, values by head, of the whole sequence
    alignas(16) bf16 dqkv[kOwn * kPitch<kProjected>];                    ///< before that: Early
    alignas(16) float4 shares[8 / kParts * kThreads];
    float mean2[kOwn], inv2[kOwn], mean1[kOwn], inv1[kOwn];
    float logsumexp[kHeads * kRows], deltas[kHeads * kRows];

    /// What is done with before the gradients of attention are found.
    struct Early {
        alignas(16) bf16 x2[kOwn * kPitch<kWidth>];
        alignas(16) float norm[kWarps * kNormSums];
        float widen[2 * kInner];
    };
    static_assert(sizeof(Early) <= sizeof(bf16) * kOwn * kPitch<kProjected>);
    static_assert(4 * kProjected * sizeof(float) <= sizeof(bf16) * kOwn * kPitch<kInner>);
    static_assert(kOwn * kPitch<kWidth> <= kX1 + kHeads * kHeadRows);
    [[nodiscard]] __device__ Early& early() { return *reinterpret_cast<Early*>(dqkv); }
    /// The gradient of attention's output by head, of the whole sequence.
    [[nodiscard]] __device__ bf16* douts() { return x1 + kX1; }
};

/// The block's matrix and rows.
struct Place {
    int k, g, rank;
    int first, rows;    ///< of the block, of the sequence's positions
    int filled;         ///< positions of the sequence
    std::int64_t base;  ///< row of the sequence's first position
    float* sums;
    /// The block's first row.
    template <class T>
    [[nodiscard]] __device__ T* of(const Mat<T>& m) const {
        return m.row(k, g, base + first);
    }
};

/// Begins all copies, in the order in which they are needed, one commit each: dy and norm2, saved, norm1, attention.
template <int kInner, int kParts>
__device__ void stage_layer(const LayerArgs& a, const Place& at, Room<kInner, kParts>& room) {
    constexpr int kOwn = kRows / kParts;
    const auto stage_floats = [&](const Mat<const float>& from, float* to, int first) {
        const int row = static_cast<int>(threadIdx.x) - first;
        if (row >= 0 && row < kOwn) copy4(shared_address(to + row), at.of(from) + row * from.stride_row, row < at.rows);
    };
    stage<kOwn, kWidth>(at.of(a.dy), a.dy.stride_row, at.rows, room.d);
    stage<kOwn, kWidth>(at.of(a.norm2.x), a.norm2.x.stride_row, at.rows, room.early().x2);
    stage_floats(a.norm2.mean, room.mean2, 0);
    stage_floats(a.norm2.inv_std, room.inv2, kRows);
    stage_floats(a.norm1.mean, room.mean1, 2 * kRows);
    stage_floats(a.norm1.inv_std, room.inv1, 3 * kRows);
    commit_copies();
    stage<kOwn, kInner>(at.of(a.saved), a.saved.stride_row, at.rows, room.inner);
    commit_copies();
    stage<kOwn, kWidth>(at.of(a.norm1.x), a.norm1.x.stride_row, at.rows, room.x1);
    commit_copies();
    stage<kRows, kProjected>(a.qkv.row(at.k, at.g, at.base), a.qkv.stride_row, at.filled, [&](int row, int column) {
        return room.heads + column / kHeadWidth * kHeadRows + row * kHeadStride + column % kHeadWidth;
    });
    const int row = static_cast<int>(threadIdx.x) / kHeads, head = static_cast<int>(threadIdx.x) % kHeads;
    copy4(shared_address(room.logsumexp + head * kRows + row), a.logsumexp.row(at.k, at.g, at.base + row) + head,
          row < at.filled);
    commit_copies();
}

/// Warps' sums in order.
__device__ inline void put_norm_sums(const float* scratch, float* to) {
    for (int c = threadIdx.x; c < kNormSums; c += kThreads) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += scratch[w * kNormSums + c];
        to[c] = sum;
    }
}

__device__ inline void load_gamma(const NormArgs& norm, const Place& at, float (&gamma)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) gamma[i] = __ldcg(norm.gamma.row(at.k, at.g, 0) + 4 * lane_of() + i);
}

/// From the gradient of linear1's output (`product`) to that before its activation, in the place of `saved`.
template <int kInner, int kParts>
__device__ void through_gelu(const RowsProduct<kRows / kParts, kWidth, kInner>& product, const LayerArgs& a, const Place& at,
                             Room<kInner, kParts>& room) {
    using Narrow = RowsProduct<kRows / kParts, kWidth, kInner>;
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
template <int kOwn>
__device__ void put_dqkv(const bf16* from, const Mat<bf16>& dqkv, const Place& at, float* scratch) {
    constexpr int kVectors = kProjected / 8, kLanes = 4;
    const int first = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    if (first >= kLanes) return;
    float totals[8] = {};
#pragma unroll 4
    for (int row = first; row < kOwn; row += kLanes) {
        const uint4 eight = *reinterpret_cast<const uint4*>(from + row * kPitch<kProjected> + column);
        if (row < at.rows) *reinterpret_cast<uint4*>(at.of(dqkv) + row * dqkv.stride_row + column) = eight;
        float v[8];
        spread(eight, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) totals[i] += v[i];
    }
    store_run<8>(scratch + first * kProjected + column, totals);
}

/// The gradient of attention's output, to room.douts() of all blocks that need it. Positions that are not filled get zeros.
template <int kInner, int kParts>
__device__ void put_douts(const RowsProduct<kRows / kParts, kWidth, kWidth>& product, const Place& at,
                          Room<kInner, kParts>& room) {
#pragma unroll
    for (int m = 0; m < product.kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = at.first + product.row(m, half), column = product.column();
            float d[8];
            product.values(m, half, d);
            bf16* place = room.douts() + column / kHeadWidth * kHeadRows + row * kHeadStride + column % kHeadWidth;
            if (row < at.filled)
                store_run<8>(place, d);
            else
                *reinterpret_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
            if constexpr (kParts > 1) {  // keys of the first block are seen by queries of the second, and not the other way
                if (at.rank == 1) sequence::put_at(0, place, *reinterpret_cast<const uint4*>(place));
            }
        }
}

template <int kInner, int kParts>
__device__ void attention_back(const LayerArgs& a, const Place& at, Room<kInner, kParts>& room) {
    const int head = warp_of() / 2, column = kHeadWidth * head;
    const Head own{room.heads + head * kHeadRows,
                   room.heads + (kHeads + head) * kHeadRows,
                   room.heads + (2 * kHeads + head) * kHeadRows,
                   room.douts() + head * kHeadRows,
                   room.logsumexp + head * kRows,
                   room.deltas + head * kRows};
    // Of four tiles of rows the first sees least: with 0 and 3, or 1 and 2, both warps of a head have as much to do.
    const auto tile_of = [&](int i) {
        if (kParts > 1) return 2 * at.rank + warp_of() % 2;
        return i == 0 ? warp_of() % 2 : 3 - warp_of() % 2;
    };
    const auto rows_of = [&](int tile) { return room.dqkv + (16 * tile - at.first) * kPitch<kProjected> + column; };
#pragma unroll 1
    for (int i = 0; i < 2 / kParts; ++i) {
        const int tile = tile_of(i);
        query_back(own, tile, a.scale, rows_of(tile));
        if constexpr (kParts > 1) {
            __syncwarp();
            float* delta = own.deltas + 16 * tile + lane_of() % 16;
            if (at.rank == 1 && lane_of() < 16) sequence::put_at(0, delta, __float_as_uint(*delta));
        }
    }
    sequence::meet<kParts>();
#pragma unroll 1
    for (int i = 0; i < 2 / kParts; ++i) {
        bf16* to = rows_of(tile_of(i));
        key_back(own, tile_of(i), a.scale, to + kWidth, to + 2 * kWidth);
    }
}

}  // namespace millrace::ops::cuda::layer_back
