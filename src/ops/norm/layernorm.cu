// Layer norm: a warp a row while its values fit into registers, else a block.

#include "ops/cuda/context.h"
#include "ops/cuda/run.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

constexpr int kWarps = 8;           ///< of a block
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

__device__ inline float warp_sum(float value) {
    for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
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

// A row in a warp: up to 32 * N columns, runs of V of them in a lane.

template <int V>
__device__ int column(int lane, int i) {
    return V * (lane + 32 * (i / V)) + i % V;
}

/// 0 behind the last column.
template <int V, int N, class T>
__device__ void load_row(const T* row, int lane, int cols, float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += V) {
        const int c = column<V>(lane, i);
        Run<T, V> run{};
        if (c < cols) run = load_as_stored<V>(row + c);
#pragma unroll
        for (int j = 0; j < V; ++j) v[i + j] = load(run.v + j);
    }
}

/// row (+) = v.
template <int V, int N, class T>
__device__ void put_row(T* row, int lane, int cols, const float (&v)[N], bool accumulate = false) {
#pragma unroll
    for (int i = 0; i < N; i += V) {
        const int c = column<V>(lane, i);
        if (c >= cols) continue;
        Run<T, V> run{};
        if (accumulate) run = load_as_stored<V>(row + c);
#pragma unroll
        for (int j = 0; j < V; ++j) put(run.v + j, v[i + j], accumulate);
        store_as_stored(row + c, run);
    }
}

template <class T, int N, int V>
__global__ void forward_warps_kernel(ForwardArgs<T> a) {
    begin_kernel();
    const int lane = threadIdx.x % 32, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
    if (r >= a.rows) return;
    float v[N], gamma[N], beta[N];
    load_row<V>(a.x.row(k, g, r), lane, a.cols, v);
    if (a.residual) {
        float residual[N];
        load_row<V>(a.residual.row(k, g, r), lane, a.cols, residual);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = rounded(v[i] + residual[i], a.x.data);
        put_row<V>(a.sum.row(k, g, r), lane, a.cols, v);
    }
    load_row<V>(a.gamma.row(k, g, 0), lane, a.cols, gamma);
    load_row<V>(a.beta.row(k, g, 0), lane, a.cols, beta);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += v[i];
    const float mean = warp_sum(sum) / static_cast<float>(a.cols);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (column<V>(lane, i) < a.cols) squares += (v[i] - mean) * (v[i] - mean);
    const float inv = 1 / sqrtf(warp_sum(squares) / static_cast<float>(a.cols) + a.eps);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = gamma[i] * (v[i] - mean) * inv + beta[i];
    put_row<V>(a.y.row(k, g, r), lane, a.cols, v);
    if (lane == 0) {
        *a.mean.row(k, g, r) = mean;
        *a.inv_std.row(k, g, r) = inv;
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
template <class T, int N, int V>
__global__ void backward_warps_kernel(BackwardArgs<T> a) {
    extern __shared__ __align__(16) float shared[];  // [kWarps][2][cols]
    begin_kernel();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int begin = blockIdx.x * a.chunk_rows, end = min(a.rows, begin + a.chunk_rows);
    const auto count = static_cast<float>(a.cols);
    float gamma[N], sums[N] = {}, dots[N] = {};
    load_row<V>(a.gamma.row(k, g, 0), lane, a.cols, gamma);
    for (int r = begin + warp; r < end; r += kWarps) {
        const float m = *a.mean.row(k, g, r), inv = *a.inv_std.row(k, g, r);
        float d[N], hat[N];
        float sum = 0, dot = 0;
        load_row<V>(a.dy.row(k, g, r), lane, a.cols, d);
        load_row<V>(a.x.row(k, g, r), lane, a.cols, hat);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            hat[i] = column<V>(lane, i) < a.cols ? (hat[i] - m) * inv : 0;
            sums[i] += d[i];
            dots[i] += d[i] * hat[i];
            sum += d[i] * gamma[i];
            dot += d[i] * gamma[i] * hat[i];
        }
        sum = warp_sum(sum) / count;
        dot = warp_sum(dot) / count;
#pragma unroll
        for (int i = 0; i < N; ++i) d[i] = inv * (d[i] * gamma[i] - sum - hat[i] * dot);
        if (a.dresidual) put_row<V>(a.dresidual.row(k, g, r), lane, a.cols, d, a.add_residual);
        if (a.dx) put_row<V>(a.dx.row(k, g, r), lane, a.cols, d, a.add_x);
    }
    float* mine = shared + warp * 2 * a.cols;
    put_row<V>(mine, lane, a.cols, sums);
    put_row<V>(mine + a.cols, lane, a.cols, dots);
    __syncthreads();
    float* to = a.partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.x + blockIdx.x) * 2 * a.cols;
    for (int c = threadIdx.x; c < 2 * a.cols; c += blockDim.x) {
        float sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += shared[w * 2 * a.cols + c];
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

/// N registers of a lane hold a row, in runs of V columns; N = 0: a row takes a block.
template <int N, int V>
struct RowShape {};
template <class F>
auto by_shape(int cols, bool whole, F f) {
    if (cols <= 32 * 4) return whole ? f(RowShape<4, 4>{}) : f(RowShape<4, 1>{});
    if (cols <= 32 * 8) return whole ? f(RowShape<8, 4>{}) : f(RowShape<8, 1>{});
    if (cols <= 32 * kMostRegisters) return whole ? f(RowShape<kMostRegisters, 4>{}) : f(RowShape<kMostRegisters, 1>{});
    return f(RowShape<0, 1>{});
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
        return by_shape(out.cols, whole, [&]<int N, int V>(RowShape<N, V>) -> KernelResult {
            if constexpr (N > 0)
                return make_launch(c, forward_warps_kernel<T, N, V>, dim3(blocks_for(out.rows, kWarps), 1, depth),
                                   dim3(32 * kWarps), 0, a);
            else
                return make_launch(c, forward_block_kernel<T>, dim3(out.rows, 1, depth), dim3(128), 0, a);
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
        return by_shape(in.cols, whole, [&]<int N, int V>(RowShape<N, V>) -> KernelResult {
            return make_kernel([a, chunks, depth, partial, stream = c.stream, odg = b[dgamma], odb = b[dbeta],
                                add_g = b.accumulates(dgamma), add_b = b.accumulates(dbeta)] {
                if constexpr (N > 0) {
                    launch(backward_warps_kernel<T, N, V>, dim3(chunks, 1, depth), dim3(32 * kWarps),
                           sizeof(float) * kWarps * 2 * static_cast<std::size_t>(a.cols), stream, a);
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
