// Sums over rows in two stages: partial sums of chunks of rows, then the chunks. How rows are cut depends on the shape of one
// matrix alone, so that members do not change each other's bits.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kThreads = 256, kMostChunks = 512, kFinalLanes = 8;

/// blockIdx: block of columns, chunk of rows, matrix. threadIdx: run of V columns, row.
template <class T, int V>
__global__ void column_chunk_kernel(Mat<const T> in, float* partial, int groups, int first, int rows, int cols, int chunk_rows) {
    __shared__ float shared[kThreads * V];
    begin_kernel();
    const int matrix = first + static_cast<int>(blockIdx.z), k = matrix / groups, g = matrix % groups;
    const int width = static_cast<int>(blockDim.x) * V, col0 = static_cast<int>(blockIdx.x) * width;
    const int col = col0 + static_cast<int>(threadIdx.x) * V;
    const int begin = static_cast<int>(blockIdx.y) * chunk_rows, end = min(rows, begin + chunk_rows);
    float sum[V] = {};
    if (col < cols) {
#pragma unroll 4
        for (int r = begin + static_cast<int>(threadIdx.y); r < end; r += static_cast<int>(blockDim.y)) {
            float v[V];
            load_run<V>(in.row(k, g, r) + col, v);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) shared[threadIdx.y * width + threadIdx.x * V + i] = sum[i];
    __syncthreads();
    float* out = partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * cols + col0;
    for (int c = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); c < width && col0 + c < cols; c += kThreads) {
        float total = 0;
        for (int y = 0; y < static_cast<int>(blockDim.y); ++y) total += shared[y * width + c];
        out[c] = total;
    }
}

__global__ void column_final_kernel(const float* partial, Mat<float> out, int groups, int first, int chunks, int cols,
                                    bool accumulate) {
    __shared__ double shared[kFinalLanes][32];
    begin_kernel();
    const int matrix = first + static_cast<int>(blockIdx.z), col = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
    const float* from = partial + static_cast<std::int64_t>(blockIdx.z) * chunks * cols;
    double sum = 0;
    for (int chunk = static_cast<int>(threadIdx.y); col < cols && chunk < chunks; chunk += kFinalLanes)
        sum += from[static_cast<std::int64_t>(chunk) * cols + col];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols) return;
    double total = 0;
    for (int y = 0; y < kFinalLanes; ++y) total += shared[y][threadIdx.x];
    float* at = out.row(matrix / groups, matrix % groups, 0) + col;
    *at = static_cast<float>(accumulate ? *at + total : total);
}

struct Plan {
    int lanes = 1, height = kThreads, chunks = 1, chunk_rows = 1;
};

Plan plan_for(const Operand& in, int run, std::size_t workspace) {
    Plan p;
    while (p.lanes < 32 && p.lanes * run < in.cols) p.lanes *= 2;
    p.height = kThreads / p.lanes;
    const auto fitting = static_cast<int>(
        std::min<std::int64_t>(kMostChunks, static_cast<std::int64_t>(workspace / sizeof(float)) / (4 * std::int64_t{in.cols})));
    p.chunks = std::clamp(in.rows / (8 * p.height), 1, std::max(fitting, 1));
    p.chunk_rows = (in.rows + p.chunks - 1) / p.chunks;
    return p;
}

template <class T, int V>
KernelResult make_sum(Context& c, const Operand& in, const Operand& out, bool accumulate) {
    const Plan p = plan_for(in, V, c.workspace_bytes);
    const std::size_t bytes = static_cast<std::size_t>(p.chunks) * static_cast<std::size_t>(in.cols) * sizeof(float);
    const int at_once = static_cast<int>(std::min<std::size_t>(c.workspace_bytes / bytes, 65535));
    if (at_once == 0) return base::Error{"column_sum over " + std::to_string(in.cols) + " columns: more than its scratch holds"};
    return make_kernel([stream = c.stream, partial = static_cast<float*>(c.workspace), p, in, out, accumulate, at_once] {
        for (int first = 0; first < in.k * in.g; first += at_once) {
            const auto depth = static_cast<unsigned>(std::min(at_once, in.k * in.g - first));
            launch(column_chunk_kernel<T, V>, dim3(blocks_for(in.cols, p.lanes * V), static_cast<unsigned>(p.chunks), depth),
                   dim3(static_cast<unsigned>(p.lanes), static_cast<unsigned>(p.height)), 0, stream, mat<const T>(in), partial,
                   in.g, first, in.rows, in.cols, p.chunk_rows);
            launch(column_final_kernel, dim3(blocks_for(in.cols, 32), 1, depth), dim3(32, kFinalLanes), 0, stream, partial,
                   mat<float>(out), in.g, first, p.chunks, in.cols, accumulate);
        }
    });
}

}  // namespace

KernelResult make_column_sum(Context& c, const Bound& b) {
    return make_column_sum(c, b[column_sum::in], b[column_sum::out], b.accumulates(column_sum::out));
}

KernelResult make_column_sum(Context& c, const Operand& in, const Operand& out, bool accumulate) {
    if (out.count() == 0) return make_kernel([] {});
    return by_real(in.dtype, [&]<class T>(T) -> KernelResult {
        constexpr int kRun = 16 / sizeof(T);
        if (whole_runs(in) && in.cols % kRun == 0) return make_sum<T, kRun>(c, in, out, accumulate);
        return make_sum<T, 1>(c, in, out, accumulate);
    });
}

}  // namespace millrace::ops::cuda
