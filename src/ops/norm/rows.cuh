#pragma once
// Rows of layer norm in registers: of half a warp, a warp or several. For many short rows the time is that of issuing
// instructions: sixteen bytes a thread, and no shuffles, addresses and scales for half of the threads. For many long ones it is
// that of memory: the next rows are on their way to shared memory while one is computed. Rows too long for the registers of a
// block are read again for every use, piece by piece.

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda::norm_rows {

/// A row in registers: N of L threads each, runs of V columns. With kLoops it is a piece of a row, and a block has one row.
template <int N, int V, int L, bool kLoops_ = false>
struct RowShape {
    static constexpr int kCount = N, kRun = V, kThreads = L, kPiece = N * L;
    static constexpr bool kLoops = kLoops_;
    static constexpr int kBlock = L > 256 ? L : 256;  ///< threads of a block
    static constexpr int kRows = kBlock / L;          ///< of a block at once
    /// Blocks of a multiprocessor at once, as far as registers go.
    static constexpr int kForwardBlocks = (N <= 8 ? 1024 : 512) / kBlock;
    static constexpr int kBackwardBlocks = (kPiece <= 128 || (N <= 8 && L > 32) ? 1024 : 512) / kBlock;
    static __device__ int lane() { return threadIdx.x % L; }
    static __device__ int row() { return threadIdx.x / L; }  ///< of the block's
    static __device__ int column(int i) { return V * (lane() + L * (i / V)) + i % V; }
    /// Calls f with the first column of each piece.
    template <class F>
    static __device__ void each_piece(int cols, F f) {
        for (int at = 0; at < (kLoops ? cols : 1); at += kPiece) f(at);
    }
    /// Columns in one access.
    template <class T>
    static constexpr int kAccess = V * sizeof(T) <= 16 ? V : 16 / sizeof(T);
};

/// Sums over the threads of each row; all of the block take part. Warps exchange theirs in shared memory, where `turn`, 0 and 1
/// in turns, spares a second barrier: a thread writes a place again only after the barrier of the exchange in between.
template <class Shape, int S>
__device__ void sum_over_row(float (&sums)[S], int turn) {
    constexpr int kWarps = Shape::kThreads / 32;  // of a row
#pragma unroll
    for (int d = kWarps > 1 ? 16 : Shape::kThreads / 2; d > 0; d /= 2)
        for (float& sum : sums) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if constexpr (kWarps > 1) {
        __shared__ __align__(16) float shared[2][Shape::kRows][S][kWarps];
        auto& exchange = shared[turn][Shape::row()];
#pragma unroll
        for (int s = 0; s < S; ++s)
            if (threadIdx.x % 32 == 0) exchange[s][Shape::lane() / 32] = sums[s];
        __syncthreads();
#pragma unroll
        for (int s = 0; s < S; ++s) {
            sums[s] = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w) sums[s] += exchange[s][w];
        }
    }
}

/// Rows of an operand, the left one, and of R others on their way to shared memory, where they can be copied in runs. Each thread
/// reads what it copied itself, so none waits for another.
template <class T, class Shape, int R = 1>
class Ring {
    static constexpr int kRow = Shape::kPiece;
    static constexpr std::size_t kEach = Shape::kCount * sizeof(T);
    static constexpr int kSlots = kEach <= 16 ? 4 : kEach <= 32 ? 3 : 2;  ///< 40 KB under way in a multiprocessor
    static constexpr bool kWanted = Shape::kRun > 1 && !Shape::kLoops;
#if __CUDA_ARCH__ >= 800
    static constexpr bool kUsed = kWanted;
#else
    static constexpr bool kUsed = false;
#endif

public:
    static constexpr std::size_t kBytes = kWanted ? sizeof(T[kSlots][Shape::kRows][1 + R][kRow]) : 0;
    static constexpr int kAhead = kUsed ? kSlots - 1 : 0;  ///< rows begun before the one that is computed

    __device__ explicit Ring(float* shared) : mine_(reinterpret_cast<T*>(shared) + Shape::row() * (1 + R) * kRow) {}
    /// Begins to copy a row of operand `which` at the right, `ahead` < kAhead rows behind the one whose left row is begun next.
    __device__ void begin_right(int ahead, int which, const T* right, int cols) {
        if constexpr (kUsed) copy(slot(next_ + ahead) + (1 + which) * kRow, right, cols);
    }
    /// Begins to copy a left row, behind the right ones.
    __device__ void begin(const T* left, int cols) {
        if constexpr (kUsed) {
            copy(slot(next_), left, cols);
            commit_copies();
            next_ = after(next_);
        }
    }
    /// Waits for the oldest rows. They are valid until the next ones begin; what cannot be copied is read where it is.
    __device__ void take(const T*& left, const T* (&right)[R]) {
        if constexpr (kUsed) {
            await_copies<kAhead>();
            left = slot(oldest_);
            for (int i = 0; i < R; ++i) right[i] = left + (1 + i) * kRow;
            oldest_ = after(oldest_);
        }
    }

private:
    static __device__ int after(int slot) { return slot + 1 == kSlots ? 0 : slot + 1; }
    __device__ T* slot(int index) const { return mine_ + index * ((1 + R) * Shape::kRows * kRow); }
    static __device__ void copy(T* to, const T* from, int cols) {
        constexpr int kAccess = Shape::template kAccess<T>;
#pragma unroll
        for (int i = 0; i < Shape::kCount; i += kAccess)
            if (const int c = Shape::column(i); c < cols) copy_run<kAccess * sizeof(T)>(shared_address(to + c), from + c);
    }

    T* mine_;
    int next_ = 0, oldest_ = 0;
};

/// 0 behind the last column.
template <class Shape, int N, class T>
__device__ void load_row(const T* row, int cols, float (&v)[N]) {
    constexpr int kAccess = Shape::template kAccess<T>;
#pragma unroll
    for (int i = 0; i < N; i += kAccess) {
        const int c = Shape::column(i);
        Run<T, kAccess> run{};
        if (c < cols) run = load_as_stored<kAccess>(row + c);
#pragma unroll
        for (int j = 0; j < kAccess; ++j) v[i + j] = load(run.v + j);
    }
}

/// row (+) = v.
template <class Shape, int N, class T>
__device__ void put_row(T* row, int cols, const float (&v)[N], bool accumulate = false) {
    constexpr int kAccess = Shape::template kAccess<T>;
#pragma unroll
    for (int i = 0; i < N; i += kAccess) {
        const int c = Shape::column(i);
        if (c >= cols) continue;
        Run<T, kAccess> run{};
        if (accumulate) run = load_as_stored<kAccess>(row + c);
        if constexpr (sizeof(T) == 2 && kAccess > 1) {  // the compiler would store them in parts
            const auto pair = [&](int j) {
                const auto value = [&](int at) { return accumulate ? load(run.v + at) + v[i + at] : v[i + at]; };
                return pair_bits(value(j), value(j + 1), std::is_same_v<T, f16>);
            };
            if constexpr (kAccess == 4)
                __stwb(reinterpret_cast<uint2*>(row + c), make_uint2(pair(0), pair(2)));
            else
                __stwb(reinterpret_cast<uint4*>(row + c), make_uint4(pair(0), pair(2), pair(4), pair(6)));
        } else {
#pragma unroll
            for (int j = 0; j < kAccess; ++j) put(run.v + j, v[i + j], accumulate);
            store_as_stored(row + c, run);
        }
    }
}

/// Shapes by the runs of 16 bytes that a row is made of, or by single columns.
template <class T, class F>
auto by_shape(int cols, bool whole, F f) {
    constexpr int kRun = 16 / sizeof(T);
    if (!whole) {
        if (cols <= 32 * 4) return f(RowShape<4, 1, 32>{});
        if (cols <= 32 * 8) return f(RowShape<8, 1, 32>{});
        if (cols <= 128 * 8) return f(RowShape<8, 1, 128>{});
        return cols <= 256 * 8 ? f(RowShape<8, 1, 256>{}) : f(RowShape<8, 1, 512, true>{});
    }
    if (cols <= 128) return f(RowShape<kRun, kRun, 128 / kRun>{});
    if (cols <= 32 * 8) return f(RowShape<8, kRun, 32>{});
    if (cols <= 32 * 12) return f(RowShape<12, 4, 32>{});
    if (cols <= 32 * 16) return f(RowShape<16, kRun, 32>{});
    if (cols <= 32 * 24) return f(RowShape<24, kRun, 32>{});
    if (cols <= 128 * 8) return f(RowShape<8, kRun, 128>{});
    if (cols <= 256 * 8) return f(RowShape<8, kRun, 256>{});
    if (cols <= 512 * 8) return f(RowShape<8, kRun, 512>{});
    return cols <= 512 * 16 ? f(RowShape<16, kRun, 512>{}) : f(RowShape<8, kRun, 512, true>{});
}

/// Whether rows of all the norms' slots can be read and written in runs of 16 bytes, and the ring of such long ones fits.
inline bool whole_rows(const Context& c, std::span<const Bound> norms, const tensor::Operand& in,
                       std::initializer_list<int> slots) {
    constexpr std::size_t kLong = Ring<float, RowShape<8, 4, 512>>::kBytes, kLonger = Ring<float, RowShape<16, 4, 512>>::kBytes;
    static_assert(kLong == Ring<float, RowShape<24, 4, 32>>::kBytes);
    return in.cols % static_cast<int>(16 / tensor::size_of(in.dtype)) == 0 &&
           c.shared_limit >= (in.cols <= 512 * 8 ? kLong : kLonger) && std::ranges::all_of(norms, [&](const Bound& b) {
               return std::ranges::all_of(slots, [&](int s) { return whole_runs(b[s]); });
           });
}

/// The shape, by by_shape, of rows that two norms in series may have in registers at once: the registers of longer ones do not
/// hold the parameters of both, and over shorter ones layers are one kernel as they are.
template <class T>
using PairShape = RowShape<8, 16 / sizeof(T), 32>;
inline bool has_pair_shape(const tensor::Operand& in) { return in.cols > 128 && in.cols <= 32 * 8; }

/// Lets a kernel use `bytes` of shared memory, and up to a kibibyte that it declares itself.
template <class K>
base::Status allow_shared(const Context& c, K* kernel, std::size_t bytes) {
    return bytes > 47 * 1024 ? raise_shared_memory(c, reinterpret_cast<const void*>(kernel)) : base::ok();
}

}  // namespace millrace::ops::cuda::norm_rows
