// Layer norm: a warp or half of one a row while its values fit into registers, else a block. For many short rows the time is that
// of issuing instructions: sixteen bytes a thread, and no shuffles, addresses and scales for half of the threads.

#include "ops/cuda/context.h"
#include "ops/cuda/run.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kWarps = 8;           ///< of a block
constexpr int kBlocks = 4;          ///< of a multiprocessor at once, where rows are short
constexpr int kMostRegisters = 24;  ///< values of a row in a lane: the sums of eight warps then fill 48 KiB

template <class T>
struct ForwardArgs {
    Mat<const T> x, residual;
    Mat<const float> gamma, beta;
    Mat<float> mean, inv_std;
    Mat<T> sum, y;
    int groups, rows, cols;
    float eps;
};

template <class T>
struct BackwardArgs {
    Mat<const T> dy, x;
    Mat<const float> gamma, mean, inv_std;
    Mat<T> dx, dresidual;
    float* partial;  ///< [matrix, chunk, 2, cols]: sums of dy and of dy times the normalised x
    int groups, rows, cols, chunk_rows;
    bool add_x, add_residual;
};

/// Over the L threads of a row; all of a warp take part.
template <int L>
__device__ float row_sum(float value) {
#pragma unroll
    for (int d = L / 2; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
    return value;
}

/// What is normalised, element c of a row: x, or x + residual as it is stored.
template <class T>
__device__ float summand(const ForwardArgs<T>& a, int k, int g, std::int64_t r, int c) {
    const float v = load(a.x.row(k, g, r) + c);
    if (!a.residual) return v;
    T* sum = a.sum.row(k, g, r) + c;
    const float both = v + load(a.residual.row(k, g, r) + c);
    store(sum, both);
    return rounded(both, sum);
}

/// A row in registers: N of L threads each, runs of V columns; 32 / L rows in a warp.
template <int N, int V, int L>
struct RowShape {
    static constexpr int kCount = N, kRun = V, kThreads = L;
    static constexpr int kRows = kWarps * 32 / L;  ///< of a block at once
    static __device__ int lane() { return threadIdx.x % L; }
    static __device__ int row() { return threadIdx.x / L; }  ///< of the block's
    static __device__ int column(int i) { return V * (lane() + L * (i / V)) + i % V; }
    /// Columns in one access.
    template <class T>
    static constexpr int kAccess = V * sizeof(T) <= 16 ? V : 16 / sizeof(T);
};
struct RowOfABlock {};

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
        if constexpr (kAccess == 8) {  // of 16 bits; the compiler would store them in four parts
            const auto pair = [&](int j) {
                const auto value = [&](int at) { return accumulate ? load(run.v + at) + v[i + at] : v[i + at]; };
                return pair_bits(value(j), value(j + 1), std::is_same_v<T, f16>);
            };
            __stwb(reinterpret_cast<uint4*>(row + c), make_uint4(pair(0), pair(2), pair(4), pair(6)));
        } else {
#pragma unroll
            for (int j = 0; j < kAccess; ++j) put(run.v + j, v[i + j], accumulate);
            store_as_stored(row + c, run);
        }
    }
}

/// A block takes kRows rows in steps of the grid; a row behind the last is computed of zeros and not written.
template <class T, class Shape>
__global__ void __launch_bounds__(32 * kWarps, Shape::kCount <= 8 ? kBlocks : 2) forward_rows_kernel(ForwardArgs<T> a) {
    constexpr int N = Shape::kCount, V = Shape::kRun, L = Shape::kThreads;
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const float share = 1 / static_cast<float>(a.cols);
    float gamma[N], beta[N];
    load_row<Shape>(a.gamma.row(k, g, 0), a.cols, gamma);
    load_row<Shape>(a.beta.row(k, g, 0), a.cols, beta);
    for (int first = blockIdx.x * Shape::kRows; first < a.rows; first += gridDim.x * Shape::kRows) {
        const int r = first + Shape::row(), cols = r < a.rows ? a.cols : 0;
        float v[N];
        load_row<Shape>(a.x.row(k, g, r), cols, v);
        if (a.residual) {
            float residual[N];
            load_row<Shape>(a.residual.row(k, g, r), cols, residual);
#pragma unroll
            for (int i = 0; i < N; ++i) v[i] = rounded(v[i] + residual[i], a.x.data);
            put_row<Shape>(a.sum.row(k, g, r), cols, v);
        }
        float sum = 0, squares = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += v[i];
        const float mean = row_sum<L>(sum) * share;
#pragma unroll
        for (int i = 0; i < N; i += V)
            if (Shape::column(i) < a.cols)
#pragma unroll
                for (int j = i; j < i + V; ++j) squares += (v[j] - mean) * (v[j] - mean);
        const float inv = 1 / sqrtf(row_sum<L>(squares) * share + a.eps);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = gamma[i] * (v[i] - mean) * inv + beta[i];
        put_row<Shape>(a.y.row(k, g, r), cols, v);
        if (Shape::lane() == 0 && r < a.rows) {
            *a.mean.row(k, g, r) = mean;
            *a.inv_std.row(k, g, r) = inv;
        }
    }
}

/// One block per row.
template <class T>
__global__ void forward_block_kernel(ForwardArgs<T> a) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    float sum = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) sum += summand(a, k, g, r, c);
    const T* in = a.residual ? a.sum.row(k, g, r) : a.x.row(k, g, r);
    const float m = block_sum(sum, shared) / static_cast<float>(a.cols);
    float squares = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float d = load(in + c) - m;
        squares += d * d;
    }
    const float inv = 1 / sqrtf(block_sum(squares, shared) / static_cast<float>(a.cols) + a.eps);
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x)
        store(a.y.row(k, g, r) + c, a.gamma.row(k, g, 0)[c] * (load(in + c) - m) * inv + a.beta.row(k, g, 0)[c]);
    if (threadIdx.x == 0) {
        *a.mean.row(k, g, r) = m;
        *a.inv_std.row(k, g, r) = inv;
    }
}

template <class T>
__device__ void put_input(const BackwardArgs<T>& a, int k, int g, std::int64_t r, int c, float value) {
    if (a.dresidual) put(a.dresidual.row(k, g, r) + c, value, a.add_residual);
    if (a.dx) put(a.dx.row(k, g, r) + c, value, a.add_x);
}

/// One chunk of rows a block, all columns: input gradients and the chunk's part of the parameters'. dx may be the memory of dy.
template <class T, class Shape>
__global__ void __launch_bounds__(32 * kWarps, Shape::kCount* Shape::kThreads <= 128 ? kBlocks : 1)
    backward_rows_kernel(BackwardArgs<T> a) {
    constexpr int N = Shape::kCount, L = Shape::kThreads;
    extern __shared__ __align__(16) float shared[];  // [Shape::kRows][2][cols]
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows);
    const float share = 1 / static_cast<float>(a.cols);
    float gamma[N], sums[N] = {}, dots[N] = {};
    load_row<Shape>(a.gamma.row(k, g, 0), a.cols, gamma);
    for (int first = begin; first < end; first += Shape::kRows) {
        const int r = first + Shape::row(), cols = r < end ? a.cols : 0;  // behind the last row all are zeros
        const float m = r < end ? *a.mean.row(k, g, r) : 0, inv = r < end ? *a.inv_std.row(k, g, r) : 0;
        float d[N], hat[N], sum = 0, dot = 0;
        load_row<Shape>(a.dy.row(k, g, r), cols, d);
        load_row<Shape>(a.x.row(k, g, r), cols, hat);
#pragma unroll
        for (int i = 0; i < N; ++i) {  // behind the last column d and gamma are zeros
            hat[i] = (hat[i] - m) * inv;
            sums[i] += d[i];
            dots[i] += d[i] * hat[i];
            d[i] *= gamma[i];
            sum += d[i];
            dot += d[i] * hat[i];
        }
        sum = row_sum<L>(sum) * share;
        dot = row_sum<L>(dot) * share;
#pragma unroll
        for (int i = 0; i < N; ++i) d[i] = inv * (d[i] - sum - hat[i] * dot);
        if (a.dresidual) put_row<Shape>(a.dresidual.row(k, g, r), cols, d, a.add_residual);
        if (a.dx) put_row<Shape>(a.dx.row(k, g, r), cols, d, a.add_x);
    }
    float* mine = shared + Shape::row() * 2 * a.cols;
    put_row<Shape>(mine, a.cols, sums);
    put_row<Shape>(mine + a.cols, a.cols, dots);
    __syncthreads();
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols;
    for (int c = threadIdx.x; c < 2 * a.cols; c += blockDim.x) {
        float sum = 0;
        for (int row = 0; row < Shape::kRows; ++row) sum += shared[row * 2 * a.cols + c];
        to[c] = sum;
    }
}

/// One block per row.
template <class T>
__global__ void input_block_kernel(BackwardArgs<T> a) {
    __shared__ float shared[32];
    begin_kernel();
    const int r = blockIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const float m = *a.mean.row(k, g, r), inv = *a.inv_std.row(k, g, r);
    const float* scale = a.gamma.row(k, g, 0);
    float sum = 0, dot = 0;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float d = load(a.dy.row(k, g, r) + c) * scale[c];
        sum += d;
        dot += d * (load(a.x.row(k, g, r) + c) - m) * inv;
    }
    sum = block_sum(sum, shared) / static_cast<float>(a.cols);
    dot = block_sum(dot, shared) / static_cast<float>(a.cols);
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float xhat = (load(a.x.row(k, g, r) + c) - m) * inv;
        put_input(a, k, g, r, c, inv * (load(a.dy.row(k, g, r) + c) * scale[c] - sum - xhat * dot));
    }
}

constexpr int kParameterLanes = 8, kSumLanes = 32;

/// How rows are cut for the sums over them, by their number in all `matrices` that share a launch: 528 chunks, four for each
/// multiprocessor of an H200, of 8 rows (one a warp) to 64; from 65,536 rows of one on 1,024 chunks.
int chunk_rows_for(int rows, int matrices) {
    const std::int64_t wanted = (std::int64_t{rows} * matrices + 528 * kWarps - 1) / (528 * kWarps) * kWarps;
    return std::max(static_cast<int>(std::clamp<std::int64_t>(wanted, kWarps, 64)), (rows + 1023) / 1024);
}

/// 32 columns of one chunk of rows a block.
template <class T>
__global__ void parameter_block_kernel(BackwardArgs<T> a) {
    begin_kernel();
    const int c = blockIdx.y * 32 + threadIdx.x, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows);
    float sum = 0, dot = 0;
    for (int r = begin + threadIdx.y; c < a.cols && r < end; r += kParameterLanes) {
        const float d = load(a.dy.row(k, g, r) + c);
        sum += d;
        dot += d * (load(a.x.row(k, g, r) + c) - *a.mean.row(k, g, r)) * *a.inv_std.row(k, g, r);
    }
    sum = sum_over_y<kParameterLanes>(sum);
    dot = sum_over_y<kParameterLanes>(dot);
    if (threadIdx.y != 0 || c >= a.cols) return;
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols + c;
    to[0] = sum;
    to[a.cols] = dot;
}

/// 32 columns a block; chunks in order.
__global__ void parameter_sum_kernel(const float* partial, Mat<float> dgamma, Mat<float> dbeta, int groups, int chunks, int cols,
                                     bool add_gamma, bool add_beta) {
    begin_kernel();
    const int c = blockIdx.x * 32 + threadIdx.x, k = blockIdx.z / groups, g = blockIdx.z % groups;
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * chunks * 2 * cols + c;
    float sum = 0, dot = 0;
    if (c < cols) {
#pragma unroll 8
        for (int chunk = threadIdx.y; chunk < chunks; chunk += kSumLanes) {
            sum += from[static_cast<std::int64_t>(chunk) * 2 * cols];
            dot += from[static_cast<std::int64_t>(chunk) * 2 * cols + cols];
        }
    }
    sum = sum_over_y<kSumLanes>(sum);
    dot = sum_over_y<kSumLanes>(dot);
    if (threadIdx.y != 0 || c >= cols) return;
    if (dgamma) put(dgamma.row(k, g, 0) + c, dot, add_gamma);
    if (dbeta) put(dbeta.row(k, g, 0) + c, sum, add_beta);
}

template <class T, class F>
auto by_shape(int cols, bool whole, F f) {
    if constexpr (sizeof(T) == 2)
        if (cols <= 16 * 8 && cols % 8 == 0 && whole) return f(RowShape<8, 8, 16>{});
    if (cols <= 32 * 4) return whole ? f(RowShape<4, 4, 32>{}) : f(RowShape<4, 1, 32>{});
    if (cols <= 32 * 8) return whole ? f(RowShape<8, 4, 32>{}) : f(RowShape<8, 1, 32>{});
    if (cols <= 32 * kMostRegisters) return whole ? f(RowShape<kMostRegisters, 4, 32>{}) : f(RowShape<kMostRegisters, 1, 32>{});
    return f(RowOfABlock{});
}

/// Whether rows of all the slots can be read and written in runs of four columns.
bool whole_rows(const Bound& b, int cols, std::initializer_list<int> slots) {
    return cols % 4 == 0 && std::all_of(slots.begin(), slots.end(), [&](int slot) { return whole_runs(b[slot]); });
}

}  // namespace

KernelResult make_layernorm_forward(Context& c, const Bound& b) {
    using namespace layernorm_forward;
    const Operand& out = b[y];
    if (out.count() == 0) return make_kernel([] {});
    const auto depth = static_cast<unsigned>(out.k * out.g);
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        const ForwardArgs<T> a{b[x],   b[residual], b[gamma], b[beta],  b[mean],  b[inv_std],
                               b[sum], b[y],        out.g,    out.rows, out.cols, b.params<LayerNormParams>().eps};
        const bool whole = whole_rows(b, out.cols, {x, residual, gamma, beta, sum, y});
        return by_shape<T>(out.cols, whole, [&]<class Shape>(Shape) -> KernelResult {
            if constexpr (!std::is_same_v<Shape, RowOfABlock>) {
                // No more blocks than run at once; they share gamma and beta among their rows.
                const unsigned most = std::max(1u, static_cast<unsigned>(kBlocks * c.multiprocessors) / depth);
                return make_launch(c, forward_rows_kernel<T, Shape>,
                                   dim3(std::min(blocks_for(out.rows, Shape::kRows), most), 1, depth), dim3(32 * kWarps), 0, a);
            } else {
                return make_launch(c, forward_block_kernel<T>, dim3(out.rows, 1, depth), dim3(128), 0, a);
            }
        });
    });
}

KernelResult make_layernorm_backward(Context& c, const Bound& b) {
    using namespace layernorm_backward;
    const Operand& in = b[x];
    if (in.k * in.g * in.cols == 0) return make_kernel([] {});
    // Pinned runs cut the rows of a member as if it were alone.
    const int chunk_rows = chunk_rows_for(in.rows, c.deterministic ? 1 : in.k * in.g);
    const int chunks = std::max(1, (in.rows + chunk_rows - 1) / chunk_rows);
    const auto floats =
        static_cast<std::size_t>(in.k * in.g) * static_cast<std::size_t>(chunks) * 2 * static_cast<std::size_t>(in.cols);
    MILLRACE_LET(partial, zero_table(c, floats * sizeof(float)));
    const auto depth = static_cast<unsigned>(in.k * in.g);
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        const BackwardArgs<T> a{b[dy],
                                b[x],
                                b[gamma],
                                b[mean],
                                b[inv_std],
                                b[dx],
                                b[dresidual],
                                static_cast<float*>(partial),
                                in.g,
                                in.rows,
                                in.cols,
                                chunk_rows,
                                b.accumulates(dx),
                                b.accumulates(dresidual)};
        const bool whole = whole_rows(b, in.cols, {dy, x, gamma, dx, dresidual});
        return by_shape<T>(in.cols, whole, [&]<class Shape>(Shape) -> KernelResult {
            return make_kernel([a, chunks, depth, partial, stream = c.stream, odg = b[dgamma], odb = b[dbeta],
                                add_g = b.accumulates(dgamma), add_b = b.accumulates(dbeta)] {
                if constexpr (!std::is_same_v<Shape, RowOfABlock>) {
                    launch(backward_rows_kernel<T, Shape>, dim3(chunks, 1, depth), dim3(32 * kWarps),
                           sizeof(float) * Shape::kRows * 2 * static_cast<std::size_t>(a.cols), stream, a);
                } else {
                    launch(parameter_block_kernel<T>, dim3(chunks, blocks_for(a.cols, 32), depth), dim3(32, kParameterLanes), 0,
                           stream, a);
                    if (a.rows > 0) launch(input_block_kernel<T>, dim3(a.rows, 1, depth), dim3(128), 0, stream, a);
                }
                launch(parameter_sum_kernel, dim3(blocks_for(a.cols, 32), 1, depth), dim3(32, kSumLanes), 0, stream, a.partial,
                       odg, odb, a.groups, chunks, a.cols, add_g, add_b);
            });
        });
    });
}

}  // namespace millrace::ops::cuda
