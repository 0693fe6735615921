#pragma once
// The product at the heart of the fused dense kernels: a block owns a strip of output columns and all rows of the batch, or a
// cluster of blocks shares the rows and exchanges its column sums through shared memory, so that batch statistics cost no second
// launch. Operands stream from L2 straight into registers, a piece per thread (element.cuh).

#include "ops/tile/element.cuh"

namespace millrace::ops::cuda::strips {

/// Shape of a block: kSplit warps share the summed index of each strip of 32 rows; tiles of 8 columns per warp.
template <int kTiles, int kSplit>
struct Strip {
    static constexpr int kColumns = 8 * kTiles;
    static constexpr int kOwn = kColumns / kSplit > 0 ? kColumns / kSplit : 1;  ///< rows a thread owns after the reduction
};

template <class E>
constexpr int kChunk = 4 * tile::kPiece<E>;  ///< summed elements of the four lanes that share a row

/// Pieces of the second operand for one round of the loop below, kUnroll chunks.
template <int kTiles, int kUnroll = 4 / kTiles>
struct Fragments {
    uint4 v[kUnroll][kTiles];
};

/// Fragments of the round that starts at `chunk`. fetch_b(tile, at): the piece of column tile * 8 + lane / 4.
template <class E, int kSplit, int kTiles, int kUnroll, class FetchB>
__device__ void fetch_round(Fragments<kTiles, kUnroll>& b, int chunk, FetchB fetch_b) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
            b.v[u][t] = fetch_b(t, kChunk<E> * (chunk + u * kSplit) + tile::kPiece<E> * static_cast<int>(threadIdx.x & 3));
}

/// One warp's share of rows [32 * strip, +32) x kColumns: chunks split, split + kSplit, ... of the summed elements.
/// a_rows: the four rows of this thread (lane / 4 + 0, 8, 16, 24), null beyond the batch. b: the first round, fetched by the
/// caller.
template <class E, int kSplit, bool kVector, int kTiles, int kUnroll, class FetchB>
__device__ void multiply(float (&acc)[2][kTiles][4], const tile::Stored<E>* const (&a_rows)[4], int summed, int split,
                         Fragments<kTiles, kUnroll>& b, FetchB fetch_b) {
    const int at = tile::kPiece<E> * static_cast<int>(threadIdx.x & 3);
    const int chunks = (summed + kChunk<E> - 1) / kChunk<E>;
    for (int chunk = split; chunk < chunks; chunk += kSplit * kUnroll) {
        uint4 a[kUnroll][4];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int r = 0; r < 4; ++r)
                a[u][r] = tile::fetch_piece<kVector>(a_rows[r], kChunk<E> * (chunk + u * kSplit) + at, summed);
        if (chunk != split) fetch_round<E, kSplit>(b, chunk, fetch_b);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            tile::Factor<E> right[kTiles];
#pragma unroll
            for (int t = 0; t < kTiles; ++t) right[t] = tile::Factor<E>(b.v[u][t]);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                const tile::Factor<E> upper(a[u][2 * m]), lower(a[u][2 * m + 1]);
#pragma unroll
                for (int t = 0; t < kTiles; ++t) tile::multiply_pieces<E>(acc[m][t], upper, lower, right[t]);
            }
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
    int size;             ///< bytes of an element
};

/// Measured on an H200 (docs/performance): a strip of one tile until the blocks fill a wave, then wider ones; rows
/// above 64 stay in one block unless few blocks have to read much, since clusters of four leave multiprocessors idle when many
/// are wanted. In f32, which is twice as much to read, clusters of two may fill the device.
inline Shape shape_for(const Extent& e, int multiprocessors) {
    constexpr int kRows = 64, kFewBlocks = 64, kLongSum = 1024;
    Shape s;
    const int parts = e.rows <= kRows ? 1 : e.rows <= 2 * kRows ? 2 : 4;
    const int most = e.size == 4 && parts == 2 ? std::max(kFewBlocks, multiprocessors) : kFewBlocks;
    if (!e.whole) {
        s.row_tiles = (e.rows + kRows - 1) / kRows;
    } else if (parts > 1 && e.strips * parts <= most && (parts == 4 || e.size * e.summed >= kLongSum)) {
        s.row_tiles = parts;
        s.cluster = true;
    } else {
        s.split = 8 / parts;
    }
    s.row_tile = (e.rows + s.row_tiles - 1) / s.row_tiles;
    if (e.wide_allowed && e.strips * s.row_tiles > multiprocessors)
        s.tiles = e.size == 2 && s.split == 8 && e.strips * s.row_tiles > 4 * multiprocessors ? 4 : 2;
    return s;
}

/// The instance of a fused kernel for a shape: Kernels::kernel<element, tiles, split, whether operands are aligned>(). Where they
/// are not, loads decide, and Tf32 is multiplied as f32.
template <class Kernels, class E, int kSplit>
auto kernel_of_split(int tiles, bool vector) {
    if (!vector) return Kernels::template kernel<tile::Stored<E>, 1, kSplit, false>();
    return tiles == 2 ? Kernels::template kernel<E, 2, kSplit, true>() : Kernels::template kernel<E, 1, kSplit, true>();
}
template <class Kernels, class E>
auto kernel_for(const Shape& s, bool vector) {
    if constexpr (sizeof(tile::Stored<E>) == 2)
        if (s.tiles == 4) return Kernels::template kernel<E, 4, 8, true>();
    return s.split == 8   ? kernel_of_split<Kernels, E, 8>(s.tiles, vector)
           : s.split == 4 ? kernel_of_split<Kernels, E, 4>(s.tiles, vector)
                          : kernel_of_split<Kernels, E, 2>(s.tiles, vector);
}

/// Launches it over the columns of all groups and members of `out`.
template <class Args>
KernelResult make_strips(Context& c, void (*kernel)(Args), const Shape& shape, const tensor::Operand& out, std::size_t bytes,
                         const Args& a) {
    if (bytes > 48 * 1024) MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(blocks_for(out.cols, 8 * shape.tiles), out.g, out.k * shape.row_tiles), block(shape.threads());
    const auto cluster = static_cast<unsigned>(shape.cluster ? shape.row_tiles : 1);
    return make_kernel([=, stream = c.stream] { launch_clusters(kernel, grid, block, cluster, bytes, stream, a); });
}

}  // namespace millrace::ops::cuda::strips
