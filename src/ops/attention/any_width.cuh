#pragma once
// Pieces of attention on tensor cores for heads of any width and alignment (T: bf16 or f16). Rows lie in shared memory filled up
// with zeros to a multiple of 16 columns; scores run over all of them, results over a slice of 128, so that a head of any width
// fits into registers. A warp owns 16 rows, the other side streams by in tiles.

#include "ops/attention/attention.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/tile/mma.cuh"

namespace millrace::ops::cuda::any_width {

constexpr int kSlice = 128, kMostThreads = 128;
constexpr float kLn2 = 0.69314718f;

/// How a block holds rows: `own` of one side, `tile` of the other.
struct Cover {
    int own, tile;
    int columns;  ///< of a row, in sixteens; eight rows of the same piece lie in different banks, being `stride` elements apart
    int piece;    ///< columns that are copied at once: 1, 2, 4 or 8, of which the head has a whole number
    [[nodiscard]] __host__ __device__ int stride() const { return columns + 8; }
    [[nodiscard]] __host__ __device__ int slices() const { return (columns + kSlice - 1) / kSlice; }
    /// Of so many matrices of own rows, two of streamed ones, and two numbers of each row.
    [[nodiscard]] std::size_t bytes(int matrices) const {
        return 2 * static_cast<std::size_t>((matrices * own + 2 * tile) * stride()) +
               2 * sizeof(float) * (own > tile ? own : tile);
    }
};

/// Which rows and columns a block and a warp have.
struct Block {
    AttentionPlace place;
    int first, slice, own;       ///< the block's first row; first column of its results; the warp's first row
    int seen = 0, own_seen = 0;  ///< keys that some row of the block, and of the warp, sees

    /// reversed: late rows begin first.
    template <class T>
    __device__ Block(const AttentionArgs<T>& a, const Cover& cover, bool reversed) {
        const int slices = cover.slices(), blocks = (a.shape.positions + cover.own - 1) / cover.own;
        const int number = static_cast<int>(blockIdx.x) / slices % blocks;
        place = place_of(a, static_cast<int>(blockIdx.x) / slices / blocks);
        slice = static_cast<int>(blockIdx.x) % slices * kSlice;
        first = (reversed ? blocks - 1 - number : number) * cover.own;
        own = first + static_cast<int>(threadIdx.x) / 32 * 16;
        const int filled = place.filled;
        if (first < filled) seen = a.shape.seen(min(first + cover.own, filled) - 1, filled);
        if (own < filled) own_seen = a.shape.seen(min(own + 16, filled) - 1, filled);
    }
};

/// Begins to bring `count` rows to shared memory, a row by each warp: zeros from row `there` on and from the head's last column
/// on.
template <class T>
__device__ void stage(const AttentionArgs<T>& a, const Cover& cover, const T* from, std::int64_t stride, int there, int count,
                      T* to) {
    const int lane = threadIdx.x % 32, warps = static_cast<int>(blockDim.x) / 32;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < count; row += warps)
        for (int column = lane * cover.piece; column < cover.columns; column += 32 * cover.piece) {
            const T* source = from + row * stride + column;
            T* target = to + row * cover.stride() + column;
            const bool inside = row < there && column < a.shape.width;
            switch (cover.piece) {
                case 8: copy16(shared_address(target), source, inside); break;
                case 4: copy8(shared_address(target), source, inside); break;
                case 2: copy4(shared_address(target), source, inside); break;
                default: *target = inside ? *source : T(0.0f);
            }
        }
}
__device__ inline void await_rows() {
    commit_copies();
    await_copies<0>();
    __syncthreads();
}

/// sums = 16 own rows times kCount streamed ones, over all columns.
template <class T, int kCount>
__device__ void multiply_across(float (&sums)[1][kCount / 8][4], const T* own, const T* streamed, const Cover& cover) {
    clear(sums);
    const int lane = threadIdx.x % 32, stride = cover.stride();
    const T* left = own + lane % 16 * stride + lane / 16 * 8;
    const T* right = streamed + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8;
#pragma unroll 2
    for (int d = 0; d < cover.columns; d += 16) {
        std::uint32_t a[4];
        load_matrices(a, left + d);
#pragma unroll
        for (int n = 0; n < kCount / 16; ++n) {
            std::uint32_t b[4];
            load_matrices(b, right + 16 * n * stride + d);
            mma16<T>(sums[0][2 * n], a, b[0], b[1]);
            mma16<T>(sums[0][2 * n + 1], a, b[2], b[3]);
        }
    }
}

/// Results of a warp: 16 rows of a slice.
template <class T>
struct SliceSums {
    float v[1][kSlice / 8][4];
    __device__ SliceSums() { clear(v); }

    /// Adds the weights of own rows and 16 streamed rows, sums n and n + 1, times these rows; `from`: their first column.
    template <int kSums>
    __device__ void add(const float (&weights)[1][kSums][4], int n, const T* from, const Cover& cover, int slice) {
        std::uint32_t left[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = pack<T>(weights[0][n + i / 2][i % 2 * 2], weights[0][n + i / 2][i % 2 * 2 + 1]);
        const int lane = threadIdx.x % 32;
        from += lane % 16 * cover.stride() + slice + lane / 16 * 8;
#pragma unroll
        for (int c = 0; c < kSlice / 16; ++c) {
            if (slice + 16 * c >= cover.columns) break;
            std::uint32_t right[4];
            load_transposed(right, from + 16 * c);
            mma16<T>(v[0][2 * c], left, right[0], right[1]);
            mma16<T>(v[0][2 * c + 1], left, right[2], right[3]);
        }
    }
    /// Writes them times `factor` of each of a thread's two rows, which are `row` and eight on; zeros from row `filled` on,
    /// nothing from row `positions` on.
    __device__ void store(T* to, std::int64_t stride, int row, int filled, const AttentionShape& shape, const Cover& cover,
                          int slice, const float (&factor)[2]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + row_of(0, 2 * half);
            if (r >= shape.positions) continue;
            T* at = to + r * stride;
#pragma unroll
            for (int n = 0; n < kSlice / 8; ++n) {
                const int column = slice + column_of(n, 0);
                const float low = r < filled ? v[0][n][2 * half] * factor[half] : 0;
                const float high = r < filled ? v[0][n][2 * half + 1] * factor[half] : 0;
                if (cover.piece > 1 && column < shape.width) {
                    *reinterpret_cast<std::uint32_t*>(at + column) = pack<T>(low, high);
                } else {
                    if (column < shape.width) at[column] = T(low);
                    if (column + 1 < shape.width) at[column + 1] = T(high);
                }
            }
        }
    }
};

/// The widest cover of `matrices` of own rows and tiles of at least `tile` that fits; own 0: none does.
inline Cover cover_of(const Context& c, int width, int piece, int matrices, int tile) {
    Cover cover{64, 64, (width + 15) / 16 * 16, piece};
    while (cover.bytes(matrices) > c.shared_limit) {
        if (cover.own == 16 && cover.tile == tile) return {};
        (cover.own == 16 || (cover.tile >= cover.own && cover.tile > tile) ? cover.tile : cover.own) /= 2;
    }
    return cover;
}
template <class T>
dim3 grid_of(const AttentionArgs<T>& a, const Cover& cover) {
    return attention_grid(a, (a.shape.positions + cover.own - 1) / cover.own * cover.slices());
}

}  // namespace millrace::ops::cuda::any_width
