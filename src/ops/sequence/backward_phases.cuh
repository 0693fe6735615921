#pragma once
// The way back through a layer, step by step: what a block of layer_backward_kernel reads, holds and writes.

#include "ops/sequence/backward.cuh"

namespace millrace::ops::cuda::layer_back {

template <class T>
struct NormArgs {
    Matrices<const T> x;
    Matrices<const float> gamma, mean, inv_std;
    Matrices<T> dz;  ///< of the linear layer in front: the norm's gradient, through dropout where there is some
};

template <class T>
struct LayerArgs {
    Matrices<const T> dy;
    NormArgs<T> norms[2];          ///< norm2, norm1
    Matrices<const T> weights[4];  ///< of linear2, linear1, out_proj and in_proj
    Matrices<const T> saved, qkv, out;
    Matrices<const std::int32_t> lengths;
    Matrices<const float> logsumexp;
    Matrices<T> dz, dqkv, dx;  ///< of linear1, of in_proj; the gradient of the layer's input
    float* partial;            ///< [members * groups, sequences * blocks of one, sum_count(widths)]
    float scale;
    int groups, positions, widths;  ///< widths: inner columns / kWidth
    bool add_dx;
    Dropout dropout[2];  ///< of linear2 and out_proj
    States state;        ///< with dropout
};

/// Where each parameter's sums lie in a row of `partial`; of a norm: dy * xhat, dy, dz as it is stored.
constexpr int kSumNorm2 = 0, kSumNorm1 = 3 * kWidth, kSumAttend = 6 * kWidth, kSumWiden = kSumAttend + kProjected;
constexpr int sum_count(int widths) { return kSumWiden + widths * kWidth; }

/// Products in turn: linear2 back to `widths` parts of linear1's output, linear1, out_proj, in_proj.
struct Tasks {
    int widen;
    [[nodiscard]] __device__ int project() const { return widen + 1; }
    [[nodiscard]] __device__ int attend() const { return widen + 2; }
    [[nodiscard]] __device__ int summed(int task) const {
        return task == widen ? widen * kWidth : task == attend() ? kProjected : kWidth;
    }
};

/// How weights stream through shared memory: kSlots pieces of kSlotRows rows.
constexpr int kSlots = 3;
template <int kParts>
constexpr int kSlotRows = kParts == 1 ? 32 : kWidth;

/// Shared memory: what a block holds. A block that has a whole sequence puts its tiles to use more than once, so that two blocks
/// fit into a multiprocessor.
template <class T, int kParts>
struct Room {
    static constexpr bool kWhole = kParts == 1;
    static constexpr int kOwnTile = kOwn<kParts> * kPitch, kTile = kRows * kPitch;
    static constexpr int kInnerStep = -kOwnTile;  ///< from the first part of `inner` to the second
    alignas(16) T tiles[kWhole ? 5 * kTile : 4 * kTile + 6 * kOwnTile];
    alignas(16) T ring[kSlots][kSlotRows<kParts> * kPitch];
    alignas(16) float levels[kHeads * kRows], deltas[kHeads * kRows];
    alignas(16) float saved_stats[kWhole ? 4 : 2 * kHeads * kOwn<kParts>];
    MemberState state;  ///< with dropout

    [[nodiscard]] __device__ T* dout() { return tiles; }                                ///< follows d
    [[nodiscard]] __device__ T* heads(int part) { return tiles + (1 + part) * kTile; }  ///< queries, keys, values
    [[nodiscard]] __device__ T* dy() { return kWhole ? heads(0) : own(0); }
    [[nodiscard]] __device__ T* d() { return kWhole ? dout() : own(1); }
    [[nodiscard]] __device__ T* inner() { return kWhole ? tiles + 4 * kTile : own(3); }  ///< its second part: as the values
    [[nodiscard]] __device__ T* residual() { return kWhole ? inner() : dy(); }           ///< what norm1 gives
    [[nodiscard]] __device__ T* own(int i) { return tiles + 4 * kTile + i * kOwnTile; }
    /// What norm n normalised, mean and inv_std [4, kOwn] of both. Parts of delta come later.
    [[nodiscard]] __device__ T* x(int n) { return kWhole ? heads(1 - n) : own(4 + n); }
    [[nodiscard]] __device__ float* stats() { return kWhole ? deltas : saved_stats; }
};

static_assert(2 * (sizeof(Room<bf16, 1>) + 1024) <= 228 * 1024, "two blocks share a multiprocessor of compute capability 9.0");
static_assert(sizeof(Room<bf16, 2>) <= 226 * 1024, "one block has a multiprocessor of compute capability 9.0");

/// The block's matrix and rows.
struct Place {
    int k, g, rank;
    int first, rows;  ///< of the block, of the sequence's positions
    int filled;       ///< positions of the sequence
    int base;         ///< row of the sequence's first position
    float* sums;
    /// The block's first row.
    template <class Element>
    [[nodiscard]] __device__ Element* of(const Matrices<Element>& m) const {
        return m.row(k, g, base + first);
    }
};

/// The weights of all products, one after the other, on their way through the ring.
template <class T, int kParts>
struct WeightStream {
    static constexpr int kPieces = kWidth / kSlotRows<kParts>;  ///< of a block of kWidth rows
    const T* from;
    int stride, left, task, slot;  ///< blocks left of the task; the slot that is filled next

    __device__ void begin(const LayerArgs<T>& a, const Place& p, int next) {
        const int layer = max(next - a.widths + 1, 0);
        task = next;
        left = layer == 1 ? a.widths : layer == 3 ? 3 : layer > 3 ? 0 : 1;
        if (left == 0) return;
        const Matrices<const T>& w = a.weights[layer];
        const ThreadRun own;
        stride = w.stride_row;
        from = w.row(p.k, p.g, own.row) + (layer == 0 ? next * kWidth : 0) + own.column;
    }
    /// Where the thread's first run of slot 0 goes.
    [[nodiscard]] static __device__ std::uint32_t place(Room<T, kParts>& room) {
        const ThreadRun own;
        return shared_address(room.ring[0] + own.row * kPitch + own.column);
    }
    /// Begins to copy piece `piece` of a block, if there is one. Behind it `slot` is the one with the oldest piece, which is read
    /// next.
    __device__ void fetch(const LayerArgs<T>& a, const Place& p, std::uint32_t place, int piece) {
        if (left > 0) {
            place += slot * (2 * kSlotRows<kParts> * kPitch);
#pragma unroll
            for (int i = 0; i < kSlotRows<kParts>; i += kRunRows<kParts>, from += kRunRows<kParts> * stride)
                copy16(place + 2 * i * kPitch, from, true);
            if (piece == kPieces - 1 && --left == 0) begin(a, p, task + 1);
        }
        slot = slot + 1 == kSlots ? 0 : slot + 1;
    }
};

/// sums = `summed` columns of a row of tiles, `step` elements from one to the next, times the stream's weights. Begins with a
/// barrier. What else was begun to be copied counts with the next piece.
template <class T, int kParts>
__device__ void multiply(RowsProduct<T, kParts>& product, const T* tile, int step, int summed, const LayerArgs<T>& a,
                         const Place& at, Room<T, kParts>& room, WeightStream<T, kParts>& weights) {
    constexpr int kPieces = WeightStream<T, kParts>::kPieces;
    const Lane self;
    tile += product.left_place(self);
    const T* ring = room.ring[0] + product.right_place(self);
    const std::uint32_t place = weights.place(room);
    clear(product.sums);
#pragma unroll 1
    for (int column = 0; column < summed; column += kWidth, tile += step) {
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            await_copies<kSlots - 2>();
            __syncthreads();
            weights.fetch(a, at, place, (piece + kSlots - 1) % kPieces);
            commit_copies();
            product.template take<kSlotRows<kParts>>(tile + piece * kSlotRows<kParts>,
                                                     ring + weights.slot * kSlotRows<kParts> * kPitch);
        }
    }
}

/// What dropout leaves of the gradient that norm n gave, to another tile and to dz. Rows beyond the sequence are zeros there.
template <int kParts, class T>
__device__ void drop_rows(const LayerArgs<T>& a, const Place& at, const MemberState& state, int n, const T* from, T* to) {
    const sequence::Mask mask(a.dropout[n], state);
    const Matrices<T>& dz = a.norms[n].dz;
    const ThreadRun own;
    const std::uint32_t first = static_cast<std::uint32_t>(at.g) * gridDim.x * a.positions + at.base + at.first;
#pragma unroll 1
    for (int row = own.row; row < at.rows; row += kRunRows<kParts>) {
        const int place = row * kPitch + own.column;
        float v[8];
        load_run<8>(from + place, v);
        const sequence::Kept kept = mask.draw(2, kWidth / 4 * (first + row) + own.column / 4, 1);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] *= kept[i];
        store_run<8>(to + place, v);
        store_run<8>(at.of(dz) + row * dz.stride_row + own.column, v);
    }
}

/// Through norm2 (0) or norm1 (1) and dropout, and the sums over rows. Its scratch is the slot of the ring that is filled next.
/// What dropout leaves takes the place of the norm's dy; the residual has what it was given.
template <bool kDrops, class T, int kParts>
__device__ void through_norm(const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room, int n, int free_slot) {
    const NormArgs<T>& args = a.norms[n];
    T* from = n == 0 ? room.dy() : room.d();
    T* to = n == 0 ? room.d() : room.residual();
    auto* scratch = reinterpret_cast<float*>(room.ring[free_slot]);
    const float* stats = room.stats() + 2 * n * kOwn<kParts>;
    norm_back<kParts, T>(from, {room.x(n), stats, stats + kOwn<kParts>}, to, args.gamma.row(at.k, at.g, 0), at.of(args.dz),
                         args.dz.stride_row, kDrops ? 0 : at.rows, scratch);
    __syncthreads();
    float* sums = at.sums + (n == 0 ? kSumNorm2 : kSumNorm1);
    sum_columns<kParts>(from, sums + kWidth);
    if constexpr (kDrops) {
        __syncthreads();  // the sums have read what is replaced
        drop_rows<kParts>(a, at, room.state, n, to, from);
        __syncthreads();
    }
    sum_columns<kParts>(kDrops ? from : to, sums + 2 * kWidth);
    if (threadIdx.x >= kWidth) return;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += scratch[w * kWidth + threadIdx.x];
    sums[threadIdx.x] = sum;
}

/// Replaces each pair of a tile by change(pair, the two of the product).
template <class T, int kParts, class Change>
__device__ void change_pairs(const RowsProduct<T, kParts>& product, T* tile, Change change) {
    const Lane self;
#pragma unroll
    for (int m = 0; m < RowsProduct<T, kParts>::kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < RowsProduct<T, kParts>::kBlocks; ++n) {
                auto* place = reinterpret_cast<std::uint32_t*>(tile + product.place(self, m, half, n));
                *place = change(*place, product.sums[m][n][2 * half], product.sums[m][n][2 * half + 1]);
            }
}

/// From the gradient of a part of linear1's output to that before its activation, in the place of `saved`.
template <class T, int kParts>
__device__ void put_through_gelu(const RowsProduct<T, kParts>& product, T* saved) {
    change_pairs(product, saved, [](std::uint32_t u, float first, float second) {
        const std::uint32_t d = pack<T>(first, second);
        return pack<T>(low_of<T>(d) * gelu_slope_rounded(low_of<T>(u)), high_of<T>(d) * gelu_slope_rounded(high_of<T>(u)));
    });
}

/// Adds the product to a tile.
template <class T, int kParts>
__device__ void add_product(const RowsProduct<T, kParts>& product, T* tile) {
    change_pairs(product, tile, [](std::uint32_t old, float first, float second) {
        return pack<T>(first + low_of<T>(old), second + high_of<T>(old));
    });
}

/// The gradient of attention's output and delta, which is it times the output; positions that are not filled get zeros. Keys of
/// the first block are seen by queries of the second, and not the other way.
template <class T, int kParts>
__device__ void put_dout(const RowsProduct<T, kParts>& product, const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room) {
    constexpr int kBlocks = RowsProduct<T, kParts>::kBlocks;
    const Lane self;
    const bool to_first_block = kParts > 1 && at.rank == 1;
    const T* out = at.of(a.out) + 8 * kBlocks * product.strip(self) + self.column;
#pragma unroll
    for (int m = 0; m < RowsProduct<T, kParts>::kTiles; ++m) {
        std::uint32_t outs[2][kBlocks];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const bool there = at.first + product.row(self, m, half) < at.filled;
            const auto* from = reinterpret_cast<const std::uint32_t*>(out + product.row(self, m, half) * a.out.stride_row);
#pragma unroll
            for (int n = 0; n < RowsProduct<T, kParts>::kBlocks; ++n) outs[half][n] = there ? __ldcg(from + 4 * n) : 0;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = at.first + product.row(self, m, half);
            const bool there = row < at.filled;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < RowsProduct<T, kParts>::kBlocks; ++n) {
                const std::uint32_t d = there ? pack<T>(product.sums[m][n][2 * half], product.sums[m][n][2 * half + 1]) : 0;
                const std::uint32_t o = outs[half][n];
                sum = fmaf(low_of<T>(d), low_of<T>(o), fmaf(high_of<T>(d), high_of<T>(o), sum));
                T* place = room.dout() + at.first * kPitch + product.place(self, m, half, n);
                *reinterpret_cast<std::uint32_t*>(place) = d;
                if (to_first_block) put_at(0, place, d);
            }
            sum = quad_sum(sum);
            if (self.lane % 4 != 0) continue;
            if constexpr (kBlocks == kHeadWidth / 8) {
                float* to = room.deltas + product.strip(self) * kRows + row;
                *to = sum;
                if (to_first_block) put_at(0, to, __float_as_uint(sum));
            } else {  // two warps share a head
                room.stats()[product.strip(self) * kOwn<kParts> + product.row(self, m, half)] = sum;
            }
        }
    }
    if constexpr (kBlocks < kHeadWidth / 8) {
        __syncthreads();
        if (self.thread >= kHeads * kOwn<kParts>) return;
        const int head = self.thread / kOwn<kParts>, row = self.thread % kOwn<kParts>;
        const float* parts = room.stats() + 2 * head * kOwn<kParts> + row;
        const float sum = parts[0] + parts[kOwn<kParts>];
        float* to = room.deltas + head * kRows + at.first + row;
        *to = sum;
        if (to_first_block) put_at(0, to, __float_as_uint(sum));
    }
}

/// The gradients of queries, keys and values take the places of these. A warp has a tile of 16 positions of a head at a time, and
/// all tiles as much to do: queries of a late one see much, keys of an early one are seen by many. Where there are warps enough,
/// half of them have the queries and half the keys and values.
template <class T, int kParts>
__device__ void attention_back(const LayerArgs<T>& a, const Place& at, Room<T, kParts>& room) {
    constexpr int kTiles = 4 / kParts, kPairs = 8;  ///< tiles of the block, pairs of a tile and a head at a time
    const Lane self;
    const int pair = self.warp % kPairs;
    const bool both = kWarps<kParts> == kPairs, queries = both || self.warp < kPairs, keys = both || self.warp >= kPairs;
#pragma unroll 1
    for (int first = 0; first < kHeads; first += kPairs / kTiles) {
        const int head = first + pair / kTiles, tile = kTiles * at.rank + pair % kTiles, column = kHeadWidth * head;
        const Head<T> own{room.heads(0) + column,
                          room.heads(1) + column,
                          room.heads(2) + column,
                          room.dout() + column,
                          room.levels + head * kRows,
                          room.deltas + head * kRows,
                          {a.positions, kHeads, kHeadWidth, 0, true, a.scale},
                          at.filled};
        HeadRows<T> rows[3];
        if (queries) query_back(own, tile, rows[0]);
        if (keys) key_back(own, tile, rows[1], rows[2]);
        __syncthreads();
        const int to = 16 * tile * kPitch + column;
        if (queries) rows[0].put(room.heads(0) + to, self);
        if (keys) {
            rows[1].put(room.heads(1) + to, self);
            rows[2].put(room.heads(2) + to, self);
        }
    }
}

/// residual += what is there of the gradient of the layer's input.
template <int kParts, class T>
__device__ void add_old(const Matrices<T>& dx, const Place& at, T* residual) {
#pragma unroll 1
    for (int i = threadIdx.x; i < at.rows * (kWidth / 8); i += kThreads<kParts>) {
        const int row = i / (kWidth / 8), column = i % (kWidth / 8) * 8;
        float v[8], more[8];
        load_run<8>(residual + row * kPitch + column, v);
        load_run<8>(at.of(dx) + row * dx.stride_row + column, more);
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] += more[e];
        store_run<8>(residual + row * kPitch + column, v);
    }
}

}  // namespace millrace::ops::cuda::layer_back
