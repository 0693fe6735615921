#pragma once
// The product at the heart of the fused dense kernels: a block owns a strip of output columns and all rows of the batch, or a
// cluster of blocks shares the rows and exchanges its column sums through shared memory, so that batch statistics cost no second
// launch. Operands stream from L2 straight into registers, 16 bytes per thread: since the order of the summed index is free as
// long as both operands agree, a thread's eight consecutive elements serve as the fragments of two m16n8k16 steps, and no
// shuffling through shared memory is needed.

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

__device__ inline void mma_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                std::uint32_t b0, std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    __trap();  // the backend refuses bf16 on these devices
#endif
}

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. Transposed: of their transposes.
__device__ inline void load_matrices(std::uint32_t (&to)[4], const bf16* row) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
__device__ inline void load_transposed(std::uint32_t (&to)[4], const bf16* row) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/// Elements [at, at + 8) of a row of `limit` elements, zeros beyond it. kVector: rows start on 16 bytes.
template <bool kVector>
__device__ inline uint4 fetch8(const bf16* row, int at, int limit) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row == nullptr || at >= limit) return v;
    if (kVector && at + 8 <= limit)
        return __ldcg(reinterpret_cast<const uint4*>(row + at));  // from L2: what L1 holds may be older than the last update
    const auto* bits = reinterpret_cast<const unsigned short*>(row);
    std::uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t low = at + 2 * i < limit ? __ldcg(bits + at + 2 * i) : 0;
        const std::uint32_t high = at + 2 * i + 1 < limit ? __ldcg(bits + at + 2 * i + 1) : 0;
        w[i] = low | high << 16;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/// Shape of a block: kSplit warps share the summed index of each strip of 32 rows; tiles of 8 columns per warp.
template <int kTiles, int kSplit>
struct Strip {
    static constexpr int kColumns = 8 * kTiles;
    static constexpr int kOwn = kColumns / kSplit > 0 ? kColumns / kSplit : 1;  ///< rows a thread owns after the reduction
    static constexpr int kUnroll = 4 / kTiles;
};

/// Eight-element fragments of the second operand for one round of the loop below.
template <int kTiles, int kSplit>
struct Fragments {
    uint4 v[Strip<kTiles, kSplit>::kUnroll][kTiles];
};

/// Fragments of the round that starts at `chunk`. fetch_b(tile, at): eight elements of column tile * 8 + lane / 4.
template <int kTiles, int kSplit, class FetchB>
__device__ void fetch_round(Fragments<kTiles, kSplit>& b, int chunk, FetchB fetch_b) {
#pragma unroll
    for (int u = 0; u < Strip<kTiles, kSplit>::kUnroll; ++u)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
            b.v[u][t] = fetch_b(t, 32 * (chunk + u * kSplit) + 8 * static_cast<int>(threadIdx.x & 3));
}

/// One warp's share of rows [32 * strip, +32) x kColumns: chunks split, split + kSplit, ... of 32 summed elements.
/// a_rows: the four rows of this thread (lane / 4 + 0, 8, 16, 24), null beyond the batch. b: the first round, fetched by the
/// caller.
template <int kTiles, int kSplit, bool kVector, class FetchB>
__device__ void multiply(float (&acc)[2][kTiles][4], const bf16* const (&a_rows)[4], int summed, int split,
                         Fragments<kTiles, kSplit>& b, FetchB fetch_b) {
    constexpr int kUnroll = Strip<kTiles, kSplit>::kUnroll;
    const int at = 8 * (threadIdx.x & 3);
    const int chunks = (summed + 31) / 32;
    for (int chunk = split; chunk < chunks; chunk += kSplit * kUnroll) {
        uint4 a[kUnroll][4];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int r = 0; r < 4; ++r) a[u][r] = fetch8<kVector>(a_rows[r], 32 * (chunk + u * kSplit) + at, summed);
        if (chunk != split) fetch_round<kTiles, kSplit>(b, chunk, fetch_b);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int t = 0; t < kTiles; ++t) {
                    mma_bf16(acc[m][t], a[u][2 * m].x, a[u][2 * m + 1].x, a[u][2 * m].y, a[u][2 * m + 1].y, b.v[u][t].x,
                             b.v[u][t].y);
                    mma_bf16(acc[m][t], a[u][2 * m].z, a[u][2 * m + 1].z, a[u][2 * m].w, a[u][2 * m + 1].w, b.v[u][t].z,
                             b.v[u][t].w);
                }
    }
}

/// Adds the kSplit partial products through shared memory, in order, and hands each thread the values it owns:
/// column threadIdx.x % kColumns, rows threadIdx.x / kColumns + i * (blockDim.x / kColumns). `partial`: blockDim.x * kColumns
/// floats.
template <int kTiles, int kSplit>
__device__ void reduce_splits(const float (&acc)[2][kTiles][4], float* partial, int strips, int strip, int split,
                              float (&own)[Strip<kTiles, kSplit>::kOwn]) {
    constexpr int kColumns = Strip<kTiles, kSplit>::kColumns;
    const int rows = 32 * strips, lane = threadIdx.x & 31;
    float* mine = partial + (split * rows + 32 * strip) * kColumns;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
            float* at = mine + (16 * m + lane / 4) * kColumns + 8 * t + 2 * (lane & 3);
            at[0] = acc[m][t][0];
            at[1] = acc[m][t][1];
            at[8 * kColumns] = acc[m][t][2];
            at[8 * kColumns + 1] = acc[m][t][3];
        }
    __syncthreads();
    const int column = threadIdx.x % kColumns, step = blockDim.x / kColumns;
#pragma unroll
    for (int i = 0; i < Strip<kTiles, kSplit>::kOwn; ++i) {
        const int row = threadIdx.x / kColumns + i * step;
        float sum = 0;
        if (row < rows)
            for (int s = 0; s < kSplit; ++s) sum += partial[(s * rows + row) * kColumns + column];
        own[i] = sum;
    }
}

/// Sum over the rows of a column, for the kColumns columns of a block; every thread gets its column's. `scratch`: one float per
/// thread of 32 and column.
template <int kColumns>
__device__ float column_sum(float value, float* scratch) {
#pragma unroll
    for (int d = 16; d >= kColumns; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x / 32;
    __syncthreads();
    if (lane < kColumns) scratch[warp * kColumns + lane] = value;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += scratch[w * kColumns + threadIdx.x % kColumns];
    return sum;
}

inline bool aligned16(const tensor::Operand& o) {
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && o.stride_row % 8 == 0 && o.stride_g % 8 == 0 &&
           o.stride_k % 8 == 0;
}

/// How a fused dense kernel covers its batch and columns.
struct Shape {
    int row_tile = 0, row_tiles = 1;  ///< rows of a block, blocks that share the columns
    int split = 8, tiles = 1;
    bool cluster = false;
    [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(32 * split * ((row_tile + 31) / 32)); }
    [[nodiscard]] std::size_t partial_bytes() const { return sizeof(float) * threads() * 8 * static_cast<std::size_t>(tiles); }
};

struct Extent {
    int rows, summed;
    std::int64_t strips;  ///< columns in eights, over all groups and members
    bool whole;           ///< column sums run over all rows
    bool wide_allowed;    ///< more than one tile: operands are aligned, and the bits may depend on the number of members
};

/// Measured on an H200 (docs/performance): a strip of one tile until the blocks fill a wave, then wider ones; rows
/// above 64 stay in one block unless few blocks have to read much, since clusters of four leave multiprocessors idle when many
/// are wanted.
inline Shape shape_for(const Extent& e, int multiprocessors) {
    constexpr int kRows = 64, kFewBlocks = 64, kLongSum = 512;
    Shape s;
    const int parts = e.rows <= kRows ? 1 : e.rows <= 2 * kRows ? 2 : 4;
    if (!e.whole) {
        s.row_tiles = (e.rows + kRows - 1) / kRows;
    } else if (parts > 1 && e.strips * parts <= kFewBlocks && (parts == 4 || e.summed >= kLongSum)) {
        s.row_tiles = parts;
        s.cluster = true;
    } else {
        s.split = 8 / parts;
    }
    s.row_tile = (e.rows + s.row_tiles - 1) / s.row_tiles;
    if (e.wide_allowed && e.strips * s.row_tiles > multiprocessors)
        s.tiles = s.split == 8 && e.strips * s.row_tiles > 4 * multiprocessors ? 4 : 2;
    return s;
}

/// The instance of a fused kernel for a shape: Kernels::kernel<tiles, split, whether operands are aligned>().
template <class Kernels, int kSplit>
auto kernel_of_split(int tiles, bool vector) {
    if (!vector) return Kernels::template kernel<1, kSplit, false>();
    return tiles == 2 ? Kernels::template kernel<2, kSplit, true>() : Kernels::template kernel<1, kSplit, true>();
}
template <class Kernels>
auto kernel_for(const Shape& s, bool vector) {
    if (s.tiles == 4) return Kernels::template kernel<4, 8, true>();
    return s.split == 8   ? kernel_of_split<Kernels, 8>(s.tiles, vector)
           : s.split == 4 ? kernel_of_split<Kernels, 4>(s.tiles, vector)
                          : kernel_of_split<Kernels, 2>(s.tiles, vector);
}

/// Pieces of a cluster: each block publishes values in shared memory, all meet, and each reads every rank's in order.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
#if __CUDA_ARCH__ >= 900
/// Where block `rank` has what lies at `at` in this block's shared memory.
__device__ inline std::uint32_t address_of_rank(const void* at, int rank) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(at))), "r"(rank));
    return remote;
}
#endif
__device__ inline float read_rank(const float* at, int rank) {
    float value = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_of_rank(at, rank)) : "memory");
#else
    (void)rank;
    value = *at;
#endif
    return value;
}

constexpr float kLog2E = 1.44269504f;
/// 2^x by the special function unit, for softmax.
__device__ inline float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

}  // namespace millrace::ops::cuda
