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
    NormArgs norms[2];                               ///< norm2, norm1
    Mat<const bf16> narrow, widen, project, attend;  ///< weights of linear2, linear1, out_proj and in_proj
    Mat<const bf16> saved, qkv, out;
    Mat<const std::int32_t> lengths;
    Mat<const float> logsumexp;
    Mat<bf16> dz, dqkv, dx;  ///< of linear1, of in_proj; the gradient of the layer's input
    float* partial;          ///< [members * groups, sequences * blocks of one, SumColumns::count]
    float scale;
    int groups, positions;
    bool add_dx;
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
    alignas(16) bf16 inner[kOwn * kPitch<kInner>];     ///< saved, dz of linear1, attention's output, column sums of dqkv
    alignas(16) bf16 x1[kX1 + kHeads * kHeadRows];     ///< what norm1 normalised, then or besides: douts()
    alignas(16) bf16 heads[3 * kHeads * kHeadRows];    ///< queries, keys, values by head, of the whole sequence
    alignas(16) bf16 dqkv[kOwn * kPitch<kProjected>];  ///< before that: Early
    alignas(16) float4 shares[8 / kParts * kThreads];
    float mean[2][kOwn], inv_std[2][kOwn];  ///< of norm2, of norm1
    float logsumexp[kHeads * kRows], deltas[kHeads * kRows];

    /// What is done with before the gradients of attention are found.
    struct Early {
        alignas(16) bf16 x2[kOwn * kPitch<kWidth>];  ///< what norm2 normalised, then the gradient of linear1's output
        alignas(16) float sums[kWarps * kNormSums];
    };
    static_assert(sizeof(Early) <= sizeof(bf16) * kOwn * kPitch<kProjected>);
    static_assert(4 * kProjected * sizeof(float) <= sizeof(bf16) * kOwn * kPitch<kInner>);
    static_assert(kOwn * kPitch<kWidth> <= kX1 + kHeads * kHeadRows && kInner >= kWidth);
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

/// Begins all copies, in the order in which they are needed, one commit each: dy and norms, saved, attention.
template <int kInner, int kParts>
__device__ void stage_layer(const LayerArgs& a, const Place& at, Room<kInner, kParts>& room) {
    constexpr int kOwn = kRows / kParts;
    stage<kOwn, kWidth>(at.of(a.dy), a.dy.stride_row, at.rows, room.d);
    const int row = static_cast<int>(threadIdx.x) % kRows, part = static_cast<int>(threadIdx.x) / kRows;
    if (row < kOwn) {
        const Mat<const float>& from = part % 2 == 0 ? a.norms[part / 2].mean : a.norms[part / 2].inv_std;
        float* to = part % 2 == 0 ? room.mean[part / 2] : room.inv_std[part / 2];
        copy4(shared_address(to + row), at.of(from) + row * from.stride_row, row < at.rows);
    }
#pragma unroll 1
    for (int n = 0; n < 2; ++n)
        stage<kOwn, kWidth>(at.of(a.norms[n].x), a.norms[n].x.stride_row, at.rows, n == 0 ? room.early().x2 : room.x1);
    commit_copies();
    stage<kOwn, kInner>(at.of(a.saved), a.saved.stride_row, at.rows, room.inner);
    commit_copies();
    stage<kRows, kProjected>(a.qkv.row(at.k, at.g, at.base), a.qkv.stride_row, at.filled, [&](int r, int column) {
        return room.heads + column / kHeadWidth * kHeadRows + r * kHeadStride + column % kHeadWidth;
    });
    const int position = static_cast<int>(threadIdx.x) / kHeads, head = static_cast<int>(threadIdx.x) % kHeads;
    copy4(shared_address(room.logsumexp + head * kRows + position), a.logsumexp.row(at.k, at.g, at.base + position) + head,
          position < at.filled);
    commit_copies();
}

/// Through norm2 (0) or norm1 (1): room.d, its place in memory, and the sums over rows.
template <int kInner, int kParts>
__device__ void through_norm(const LayerArgs& a, const Place& at, Room<kInner, kParts>& room, int n) {
    const NormArgs& norm = a.norms[n];
    float gamma[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) gamma[i] = __ldcg(norm.gamma.row(at.k, at.g, 0) + 4 * lane_of() + i);
    norm_back<kRows / kParts>(room.d, {n == 0 ? room.early().x2 : room.x1, room.mean[n], room.inv_std[n]}, gamma, at.of(norm.dx),
                              norm.dx.stride_row, at.rows, room.early().sums);
    __syncthreads();
    float* to = at.sums + (n == 0 ? SumColumns<kInner>::norm2 : SumColumns<kInner>::norm1);
#pragma unroll 1
    for (int c = threadIdx.x; c < kNormSums; c += kThreads) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += room.early().sums[w * kNormSums + c];
        to[c] = sum;
    }
}

/// Where a product goes: row r, strip s of 32 columns at to + r * row + s * strip; beyond `rows` nothing, from `zero` on zeros.
struct Target {
    bf16* to;
    int row, strip, rows, zero;
    const bf16* add;  ///< rows of kPitch<kWidth> that are added, or null
};
template <int kParts>
__device__ void put_product(const RowsProduct<kRows / kParts>& product, const Target& target, bool to_first_block) {
#pragma unroll
    for (int m = 0; m < product.kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = product.row(m, half), column = 8 * (lane_of() % 4);
            float d[8];
            product.values(m, half, d);
            if (target.add != nullptr) {
                float more[8];
                load_run<8>(target.add + row * kPitch<kWidth> + 32 * product.strip() + column, more);
#pragma unroll
                for (int i = 0; i < 8; ++i) d[i] += more[i];
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) d[i] = row < target.zero ? d[i] : 0;
            bf16* place = target.to + row * target.row + product.strip() * target.strip + column;
            if (row < target.rows) store_run<8>(place, d);
            if constexpr (kParts > 1) {
                if (to_first_block) sequence::put_at(0, place, *reinterpret_cast<const uint4*>(place));
            }
        }
}

/// From the gradient of columns [first, + kWidth) of linear1's output (early().x2) to that before its activation, in the place of
/// `saved`, and their sums.
template <int kInner, int kParts>
__device__ void through_gelu(const LayerArgs& a, const Place& at, Room<kInner, kParts>& room, int first) {
    constexpr int kVectors = kWidth / 8, kStep = kThreads / kVectors, kOwn = kRows / kParts;
    const int lane = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    float totals[8] = {};
    bf16* out = at.of(a.dz) + lane * a.dz.stride_row + first + column;
#pragma unroll 1
    for (int row = lane; row < kOwn; row += kStep, out += kStep * a.dz.stride_row) {
        bf16* place = room.inner + row * kPitch<kInner> + first + column;
        float d[8], u[8];
        load_run<8>(room.early().x2 + row * kPitch<kWidth> + column, d);
        load_run<8>(place, u);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float value, slope;
            gelu_and_slope(u[i], value, slope);
            d[i] *= slope;
            totals[i] += d[i];
        }
        store_run<8>(place, d);
        if (row < at.rows) store_run<8>(out, d);
    }
    store_run<8>(room.early().sums + lane * kWidth + column, totals);
    __syncthreads();
    if (threadIdx.x >= kWidth) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kStep; ++i) sum += room.early().sums[i * kWidth + threadIdx.x];
    at.sums[SumColumns<kInner>::widen + first + threadIdx.x] = sum;
}

/// room.dqkv to its place, and each of four threads' sums over its rows to `scratch` [4, kProjected].
template <int kOwn>
__device__ void put_dqkv(const bf16* from, const Mat<bf16>& dqkv, const Place& at, float* scratch) {
    constexpr int kVectors = kProjected / 8, kLanes = 4;
    const int first = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    if (first >= kLanes) return;
    float totals[8] = {};
    bf16* out = at.of(dqkv) + first * dqkv.stride_row + column;
#pragma unroll 1
    for (int row = first; row < kOwn; row += kLanes, out += kLanes * dqkv.stride_row) {
        const uint4 eight = *reinterpret_cast<const uint4*>(from + row * kPitch<kProjected> + column);
        if (row < at.rows) *reinterpret_cast<uint4*>(out) = eight;
        float v[8];
        spread(eight, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) totals[i] += v[i];
    }
    store_run<8>(scratch + first * kProjected + column, totals);
}

/// delta of the block's rows: attention's output, in room.inner, times its gradient.
template <int kInner, int kParts>
__device__ void find_deltas(const Place& at, Room<kInner, kParts>& room) {
    const int row = static_cast<int>(threadIdx.x) / kHeads, head = static_cast<int>(threadIdx.x) % kHeads;
    if (row >= kRows / kParts) return;
    const bf16* out = room.inner + row * kPitch<kWidth> + head * kHeadWidth;
    const bf16* dout = room.douts() + head * kHeadRows + (at.first + row) * kHeadStride;
    float sum = 0;
#pragma unroll 1
    for (int c = 0; c < kHeadWidth; c += 8) {
        float left[8], right[8];
        load_run<8>(out + c, left);
        load_run<8>(dout + c, right);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(left[i], right[i], sum);
    }
    float* to = room.deltas + head * kRows + at.first + row;
    *to = sum;
    if constexpr (kParts > 1) {
        if (at.rank == 1) sequence::put_at(0, to, __float_as_uint(sum));
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
#pragma unroll 1
    for (int i = 0; i < 2 / kParts; ++i) {
        // Queries of a late tile see much, keys of an early one are seen by many: with tiles 0 and 3, or 1 and 2, both warps of a
        // head have as much to do.
        const int tile = kParts > 1 ? 2 * at.rank + warp_of() % 2 : i == 0 ? warp_of() % 2 : 3 - warp_of() % 2;
        bf16* to = room.dqkv + (16 * tile - at.first) * kPitch<kProjected> + column;
        query_back(own, tile, a.scale, to);
        key_back(own, tile, a.scale, to + kWidth, to + 2 * kWidth);
    }
}

/// room.d += what is there of the gradient of the layer's input.
template <int kOwn>
__device__ void add_old(const Mat<bf16>& dx, const Place& at, bf16* d) {
#pragma unroll 1
    for (int i = threadIdx.x; i < at.rows * (kWidth / 8); i += kThreads) {
        const int row = i / (kWidth / 8), column = i % (kWidth / 8) * 8;
        float v[8], more[8];
        load_run<8>(d + row * kPitch<kWidth> + column, v);
        load_run<8>(at.of(dx) + row * dx.stride_row + column, more);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] += more[e];
        store_run<8>(d + row * kPitch<kWidth> + column, v);
    }
}

}  // namespace millrace::ops::cuda::layer_back
