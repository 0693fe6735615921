#pragma once
// A product whose summed index are the rows of both operands, 64 columns times 64 or 128 times 128, for compute capability 8.0
// and up: rows go through shared memory in slices, and the next ones are under way during the products.

#include "ops/tile/element.cuh"

namespace millrace::ops::cuda::tile {

/// Of one operand.
template <class T>
struct Columns {
    const T* first;  ///< first column, row 0
    int stride, count;
    bool vector;  ///< rows begin at multiples of 16 bytes
};

template <class E, int kTile>
class SummedRows {
public:
    using T = Stored<E>;
    static constexpr int kThreads = 2 * kTile, kDepth = 4096 / kTile;  ///< kDepth: rows of a slice
    /// Warps own kTile / 2 x 32 of the tile; a thread has columns left() + 16 m (+ 8: the last two sums) of the left operand and
    /// right() + 8 n and the next one of the right.
    static constexpr int kHigh = kTile / 32;
    using Sums = float[kHigh][4][4];
    static __device__ int left() { return kTile / 2 * (warp() & 1) + lane() / 4; }
    static __device__ int right() { return 32 * (warp() >> 1) + 2 * (lane() & 3); }

    /// sums += left^T right over `rows` rows. Where it is asked for, left_sum += every other row of left column
    /// threadIdx.x % kTile, which two threads share.
    __device__ void multiply(Sums& sums, const Columns<T>& left, const Columns<T>& right, int rows, bool sums_left,
                             float& left_sum) {
        Share next_left, next_right;
        next_left.fetch(left, 0, rows);
        next_right.fetch(right, 0, rows);
        for (int row = 0; row < rows; row += kDepth) {
            __syncthreads();
            next_left.put(left_);
            next_right.put(right_);
            __syncthreads();
            if (row + kDepth < rows) {
                next_left.fetch(left, row + kDepth, rows);
                next_right.fetch(right, row + kDepth, rows);
            }
            const int steps = min(kDepth / 16, (rows - row + 15) / 16);
            for (int s = 0; s < steps; ++s) step(sums, 16 * s);
            if (sums_left) left_sum += half_column();
        }
    }

private:
    static constexpr int kPitch = kTile + 8;  ///< keeps reads free of bank conflicts

    static __device__ int lane() { return static_cast<int>(threadIdx.x) & 31; }
    static __device__ int warp() { return static_cast<int>(threadIdx.x) >> 5; }

    /// A thread's share of a slice, on its way to shared memory.
    struct Share {
        static constexpr int kAcross = kTile / kPiece<T>, kCount = kDepth * kAcross / kThreads;
        uint4 v[kCount];

        __device__ void fetch(const Columns<T>& from, int row0, int rows) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const int row = row0 + row_of(i);
                const T* source = row < rows ? from.first + std::int64_t{row} * from.stride : nullptr;
                v[i] = from.vector ? fetch_piece<true>(source, column(), from.count)
                                   : fetch_piece<false>(source, column(), from.count);
            }
        }
        __device__ void put(T* to) const {
#pragma unroll
            for (int i = 0; i < kCount; ++i) *reinterpret_cast<uint4*>(to + row_of(i) * kPitch + column()) = v[i];
        }

    private:
        static __device__ int row_of(int i) { return static_cast<int>(threadIdx.x) / kAcross + i * (kThreads / kAcross); }
        static __device__ int column() { return kPiece<T> * (static_cast<int>(threadIdx.x) % kAcross); }
    };

    /// Of the slice in memory.
    __device__ float half_column() const {
        const T* column = left_ + threadIdx.x / kTile * kPitch + threadIdx.x % kTile;
        float sum = 0;
#pragma unroll 8
        for (int row = 0; row < kDepth; row += 2) sum += load(column + row * kPitch);
        return sum;
    }

    /// The piece of a column: rows t, t + 4, t + 8 and t + 12 behind `row`, where t is the lane in its four.
    static __device__ uint4 down(const T* from, int row, int column) {
        const auto* at = reinterpret_cast<const std::uint32_t*>(from + (row + (lane() & 3)) * kPitch + column);
        return make_uint4(at[0], at[4 * kPitch], at[8 * kPitch], at[12 * kPitch]);
    }

    /// 16 rows from `row` on.
    __device__ void step(Sums& sums, int row) const {
        const int left0 = kTile / 2 * (warp() & 1), right0 = 32 * (warp() >> 1);
        if constexpr (sizeof(T) == 4) {
            Factor<E> right[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) right[n] = Factor<E>(down(right_, row, right0 + 8 * n + lane() / 4));
#pragma unroll
            for (int m = 0; m < kHigh; ++m) {
                const int column = left0 + 16 * m + lane() / 4;
                const Factor<E> upper(down(left_, row, column)), lower(down(left_, row, column + 8));
#pragma unroll
                for (int n = 0; n < 4; ++n) multiply_pieces<E>(sums[m][n], upper, lower, right[n]);
            }
        } else {
            const int part = lane() / 8, line = lane() % 8;
            std::uint32_t a[kHigh][4], b[2][4];
#pragma unroll
            for (int m = 0; m < kHigh; ++m)
                load_transposed(a[m], left_ + (row + (part >> 1) * 8 + line) * kPitch + left0 + 16 * m + (part & 1) * 8);
#pragma unroll
            for (int n = 0; n < 2; ++n)
                load_transposed(b[n], right_ + (row + (part & 1) * 8 + line) * kPitch + right0 + 16 * n + (part >> 1) * 8);
#pragma unroll
            for (int m = 0; m < kHigh; ++m)
#pragma unroll
                for (int n = 0; n < 4; ++n)
                    fragment_step<E>(sums[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[n / 2][2 * (n & 1)],
                                     b[n / 2][2 * (n & 1) + 1]);
        }
    }

    alignas(16) T left_[kDepth * kPitch];
    alignas(16) T right_[kDepth * kPitch];
};

}  // namespace millrace::ops::cuda::tile
