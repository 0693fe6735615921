#pragma once
// Pieces of attention without tensor cores, of any width, alignment and precision: a block of four warps has own rows of one head
// and streams the other side's rows through shared memory in tiles, as float. A thread holds the products of several own and
// several streamed rows, then several columns of its own rows. Every sum has a fixed order.

#include "ops/attention/attention.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {

constexpr int kPlainThreads = 128;

/// A thread has kOwn own rows, kStreamed streamed ones and an eighth of `kColumns` columns. Heads have at most so many, or,
/// kWide, any number: then a block writes one slice of kColumns, and rows come to shared memory in slabs of as many columns as
/// fit. Own rows per thread do not change the order of any sum.
template <int kColumns_, int kOwn_, int kStreamed_, bool kWide_ = false>
struct PlainForm {
    static constexpr int kColumns = kColumns_, kOwn = kOwn_, kStreamed = kStreamed_;
    static constexpr bool kWide = kWide_;
    static constexpr int kRows = 16 * kOwn, kTile = 8 * kStreamed;  ///< of a block
    static constexpr int kPitch = kTile + 8;                        ///< four rows of weights lie in different banks
    /// Elements from row to row of a slab in shared memory: eight rows begin in different banks.
    __host__ __device__ static constexpr int stride(int slab) { return kWide ? slab + 4 : kColumns + 4; }
    __host__ __device__ static constexpr int slices(int width) { return kWide ? (width + kColumns - 1) / kColumns : 1; }
    static int blocks(const AttentionShape& s) { return (s.positions + kRows - 1) / kRows * slices(s.width); }
    /// Of `sides` own matrices and two streamed ones, weights, and two values of each query. Weights lie behind the rows: the
    /// last slice may read, never use, what follows a row.
    static std::size_t bytes(int slab, int sides) {
        return sizeof(float) * static_cast<std::size_t>((sides * kRows + 2 * kTile) * stride(slab) + kRows * kPitch +
                                                        2 * (kRows > kTile ? kRows : kTile));
    }
    /// Columns of a slab: the whole head or a multiple of kColumns.
    static int slab(int width, int sides, std::size_t limit) {
        int columns = (width + 7) / 8 * 8;
        while (kWide && columns > kColumns && bytes(columns, sides) > limit) columns = (columns - 1) / kColumns * kColumns;
        return columns;
    }
};

/// Four elements of a row of which `left` are there; `whole`: all or none, at a multiple of 16 bytes.
template <class T>
__device__ void fetch_four(const T* from, int left, bool whole, float (&v)[4]) {
    if (whole && left > 0) return load_run<4>(from, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i < left ? load(from + i) : 0;
}

/// Where a block and a thread work. Lanes are in Z order: lanes that differ in bit 0 share own rows, in bit 1 streamed rows, so
/// that a warp's reads of 16 bytes take two turns instead of four.
template <class T, class Form>
struct PlainWork {
    const AttentionArgs<T>& a;
    AttentionPlace place;
    int slab;                         ///< columns of one; all but the last have so many
    int first, slice, x, local, own;  ///< own row of the block; first column; of the thread: lane, first row, its position

    __device__ PlainWork(const AttentionArgs<T>& args, int columns, int block) : a(args), slab(columns) {
        const int slices = Form::slices(a.shape.width), blocks = (a.shape.positions + Form::kRows - 1) / Form::kRows;
        const int thread = threadIdx.x;
        slice = block % slices * Form::kColumns;
        first = block / slices % blocks * Form::kRows;
        place = place_of(a, block / slices / blocks);
        x = (thread & 1) | (thread >> 1 & 6);
        local = thread / 32 * 4 * Form::kOwn + ((thread >> 1 & 1) | (thread >> 3 & 2));
        own = first + local;
    }
    [[nodiscard]] __device__ int stride() const { return Form::stride(slab); }
    [[nodiscard]] __device__ int slabs() const { return Form::kWide ? (a.shape.width + slab - 1) / slab : 1; }
    /// The first column of the slab with the slice.
    [[nodiscard]] __device__ int slice_slab() const { return Form::kWide ? slice / slab * slab : 0; }
    /// First and last own row of the thread's warp.
    [[nodiscard]] __device__ int warp_first() const { return first + static_cast<int>(threadIdx.x) / 32 * 4 * Form::kOwn; }
    [[nodiscard]] __device__ int warp_last() const { return warp_first() + 4 * Form::kOwn - 1; }

    /// Begins to bring the slab of `count` rows that begins at `column` to shared memory, zeros beyond the filled ones; `from`:
    /// position 0.
    __device__ void stage(float* to, const T* from, std::int64_t stride_row, int at, int count, int column) const {
        const int fours = (stride() - 4) / 4;
        for (int i = threadIdx.x; i < count * fours; i += kPlainThreads) {
            const int r = i / fours, d = i % fours * 4, left = at + r < place.filled ? a.shape.width - column - d : 0;
            const T* source = from + (at + r) * stride_row + column + d;
            float* target = to + r * stride() + d;
#if __CUDA_ARCH__ >= 800
            if constexpr (std::is_same_v<T, float>) {
                if (a.whole) {
                    copy16(shared_address(target), source, left > 0);
                } else {
                    for (int e = 0; e < 4; ++e) copy4(shared_address(target + e), source + e, e < left);
                }
                continue;
            }
#endif
            float v[4];
            fetch_four(source, left, a.whole, v);
            store_run<4>(target, v);
        }
    }
    __device__ static void await_rows() {
        commit_copies();
        await_copies<0>();
        __syncthreads();
    }
    /// Brings the logsumexp of kQueries queries and finds their deltas: eight lanes a row, all reads in flight with the copies.
    template <int kQueries>
    __device__ void find_deltas(int at, float* logsumexps, float* deltas) const {
        constexpr int kEach = kQueries / 16;
        const int lane = threadIdx.x % 8, first_row = at + static_cast<int>(threadIdx.x) / 8;
        float delta[kEach] = {};
        for (int d = 4 * lane; d < a.shape.width; d += 32)
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                const int row = first_row + 16 * i, left = row < place.filled ? a.shape.width - d : 0;
                float dout[4], out[4];
                fetch_four(a.dout.row(place.k, 0, place.row + row) + place.column + d, left, a.whole, dout);
                fetch_four(a.out.row(place.k, 0, place.row + row) + place.column + d, left, a.whole, out);
#pragma unroll
                for (int e = 0; e < 4; ++e) delta[i] = fmaf(dout[e], out[e], delta[i]);
            }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            for (int distance = 4; distance > 0; distance /= 2) delta[i] += __shfl_xor_sync(0xffffffffu, delta[i], distance);
            const int row = first_row + 16 * i;
            if (lane > 0 || row >= place.filled) continue;
            deltas[row - at] = delta[i];
            logsumexps[row - at] = a.logsumexp.row(place.k, 0, place.row + row)[place.head];
        }
    }
    /// sums += products of own rows and rows of a tile: along the columns of the slab that begins at `column`.
    __device__ void across(float (&sums)[Form::kOwn][Form::kStreamed], const float* owned, const float* streamed,
                           int column) const {
        owned += local * stride();
        streamed += x * stride();
        for (int d = 0; d < min(slab, a.shape.width - column); d += 8)
#pragma unroll
            for (int half = d; half < d + 8; half += 4) {
                float left[Form::kOwn][4], right[Form::kStreamed][4];
#pragma unroll
                for (int i = 0; i < Form::kOwn; ++i) load_run<4>(owned + 4 * i * stride() + half, left[i]);
#pragma unroll
                for (int j = 0; j < Form::kStreamed; ++j) load_run<4>(streamed + 8 * j * stride() + half, right[j]);
#pragma unroll
                for (int e = 0; e < 4; ++e)
#pragma unroll
                    for (int i = 0; i < Form::kOwn; ++i)
#pragma unroll
                        for (int j = 0; j < Form::kStreamed; ++j) sums[i][j] = fmaf(left[i][e], right[j][e], sums[i][j]);
            }
    }
    /// sums += weights of own rows times rows [begin, end) of a tile; `weights` of the warp's rows pass through `square`.
    __device__ void along(float (&sums)[Form::kOwn][Form::kColumns / 8], const float (&weights)[Form::kOwn][Form::kStreamed],
                          float* square, const float* streamed, int begin, int end) const {
        square += local * Form::kPitch;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < Form::kOwn; ++i)
#pragma unroll
            for (int j = 0; j < Form::kStreamed; ++j) square[4 * i * Form::kPitch + x + 8 * j] = weights[i][j];
        __syncwarp();
        streamed += slice - slice_slab() + 4 * x;
#pragma unroll 2
        for (int row = max(begin, 0) / 4 * 4; row < min(end, Form::kTile); row += 4) {
            float shares[Form::kOwn][4];
#pragma unroll
            for (int i = 0; i < Form::kOwn; ++i) load_run<4>(square + 4 * i * Form::kPitch + row, shares[i]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int n = 0; n < Form::kColumns / 32; ++n) {
                    float values[4];
                    load_run<4>(streamed + (row + e) * stride() + 32 * n, values);
#pragma unroll
                    for (int i = 0; i < Form::kOwn; ++i)
#pragma unroll
                        for (int d = 0; d < 4; ++d) sums[i][4 * n + d] = fmaf(shares[i][e], values[d], sums[i][4 * n + d]);
                }
        }
    }
    /// Row i of the thread times `factor`; `to`: position 0.
    __device__ void store_row(const float (&sums)[Form::kColumns / 8], int i, float factor, T* to,
                              std::int64_t stride_row) const {
        if (own + 4 * i >= a.shape.positions) return;
#pragma unroll
        for (int n = 0; n < Form::kColumns / 32; ++n) {
            const int column = slice + 4 * x + 32 * n;
            float v[4];
#pragma unroll
            for (int d = 0; d < 4; ++d) v[d] = sums[4 * n + d] * factor;
            T* at = to + (own + 4 * i) * stride_row + column;
            if (a.whole && column < a.shape.width) {
                store_run<4>(at, v);
            } else {
                for (int d = 0; d < 4; ++d)
                    if (column + d < a.shape.width) store(at + d, v[d]);
            }
        }
    }
};

/// Over the eight threads that share own rows.
__device__ inline float lanes_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    return v + __shfl_xor_sync(0xffffffffu, v, 8);
}
__device__ inline float lanes_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 4));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 8));
}

}  // namespace millrace::ops::cuda
