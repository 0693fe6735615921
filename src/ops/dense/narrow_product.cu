// Gradients of a layer with very few outputs over very many rows: a matter of bandwidth, for which products with tiles are made
// too wide. Weight gradients are summed in two stages, cut by the shape of one matrix alone.

#include "ops/cuda/late_sums.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kMostOutputs = 4, kLanes = 32, kRows = 8, kMostChunks = 512, kRowsPerChunk = 256;

template <class T>
struct NarrowArgs {
    Mat<const T> dz, other;  ///< other: w of dgrad, x of wgrad
    int groups, rows, cols, outputs;
};

/// dx = dz w, a warp per row.
template <class T, class Out, int V>
__global__ void narrow_dgrad_kernel(const __grid_constant__ NarrowArgs<T> a, Mat<Out> dx, bool accumulate) {
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, r = static_cast<int>(blockIdx.x * kRows + threadIdx.y);
    if (r >= a.rows) return;
    float d[kMostOutputs] = {};
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o)
        if (o < a.outputs) d[o] = load(a.dz.row(k, g, r) + o);
    for (int c = static_cast<int>(threadIdx.x) * V; c < a.cols; c += kLanes * V) {
        Out* to = dx.row(k, g, r) + c;
        float sum[V] = {};
        if (accumulate) load_run<V>(to, sum);
#pragma unroll
        for (int o = 0; o < kMostOutputs; ++o)
            if (o < a.outputs) {
                float w[V];
                load_run<V>(a.other.row(k, g, o) + c, w);
#pragma unroll
                for (int i = 0; i < V; ++i) sum[i] += d[o] * w[i];
            }
        store_run<V>(to, sum);
    }
}

/// partial [matrices, chunks, outputs, cols]; blockIdx: columns, chunk of rows, matrix.
template <class T, int V>
__global__ void narrow_wgrad_kernel(const __grid_constant__ NarrowArgs<T> a, float* partial, int chunk_rows) {
    __shared__ float shared[kRows][kLanes * V];
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups;
    const int col0 = static_cast<int>(blockIdx.x) * kLanes * V, col = col0 + static_cast<int>(threadIdx.x) * V;
    const int begin = static_cast<int>(blockIdx.y) * chunk_rows, end = min(a.rows, begin + chunk_rows);
    float sum[kMostOutputs][V] = {};
    if (col < a.cols) {
#pragma unroll 2
        for (int r = begin + static_cast<int>(threadIdx.y); r < end; r += kRows) {
            float x[V];
            load_run<V>(a.other.row(k, g, r) + col, x);
#pragma unroll
            for (int o = 0; o < kMostOutputs; ++o) {
                const float d = o < a.outputs ? load(a.dz.row(k, g, r) + o) : 0.0f;
#pragma unroll
                for (int i = 0; i < V; ++i) sum[o][i] += d * x[i];
            }
        }
    }
    const int thread = static_cast<int>(threadIdx.y) * kLanes + static_cast<int>(threadIdx.x);
    float* out = partial + (static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * a.outputs * a.cols + col0;
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) {
        if (o >= a.outputs) break;
#pragma unroll
        for (int i = 0; i < V; ++i) shared[threadIdx.y][threadIdx.x * V + i] = sum[o][i];
        __syncthreads();
        for (int c = thread; c < kLanes * V && col0 + c < a.cols; c += kLanes * kRows) {
            float total = 0;
            for (int y = 0; y < kRows; ++y) total += shared[y][c];
            out[static_cast<std::int64_t>(o) * a.cols + c] = total;
        }
        __syncthreads();
    }
}

template <class T>
NarrowArgs<T> narrow_args(const Operand& dz, const Operand& other) {
    return {dz, other, dz.g, dz.rows, other.cols, dz.cols};
}

template <class T, class Out>
KernelResult make_dgrad(Context& c, const Operand& dz, const Operand& w, const Operand& dx, bool accumulate) {
    const bool whole = dx.cols % 8 == 0 && whole_runs(w) && whole_runs(dx);
    const auto kernel = whole ? narrow_dgrad_kernel<T, Out, 8> : narrow_dgrad_kernel<T, Out, 1>;
    const dim3 grid(blocks_for(dx.rows, kRows), 1, dx.k * dx.g);
    return make_launch(c, kernel, grid, dim3(kLanes, kRows), 0, narrow_args<T>(dz, w), dx, accumulate);
}

template <class T, int V>
KernelResult make_wgrad(Context& c, const Operand& dz, const Operand& x, const Operand& dw, bool accumulate) {
    const int chunks = std::clamp(dz.rows / kRowsPerChunk, 1, kMostChunks), chunk_rows = (dz.rows + chunks - 1) / chunks;
    const std::size_t matrices = static_cast<std::size_t>(dw.k) * static_cast<std::size_t>(dw.g * chunks);
    MILLRACE_LET(table, zero_table(c, sizeof(float) * matrices * static_cast<std::size_t>(dw.rows * dw.cols)));
    auto* partial = static_cast<float*>(table);
    std::vector<ChunkSums> sums;
    for (int o = 0; o < dw.rows; ++o) {
        Operand row = dw;
        row.rows = 1;
        row.data = dw.at<float>(0, 0, o);
        sums.push_back({row, partial + o * dw.cols, chunks, dw.rows * dw.cols, accumulate, table});
    }
    return with_sums(c,
                     make_launch(c, narrow_wgrad_kernel<T, V>, dim3(blocks_for(dw.cols, kLanes * V), chunks, dw.k * dw.g),
                                 dim3(kLanes, kRows), 0, narrow_args<T>(dz, x), partial, chunk_rows),
                     sums);
}

}  // namespace

bool is_narrow(const Context& c, const Operand& dz) {
    return dz.rows >= c.library_rows && dz.cols > 0 && dz.cols <= kMostOutputs;
}

KernelResult make_narrow_dgrad(Context& c, const Operand& dz, const Operand& w, const Operand& dx, bool accumulate) {
    if (dx.count() == 0) return make_kernel([] {});
    return by_real(dz.dtype, [&]<class T>(T) -> KernelResult {
        if (dx.dtype == DType::f32) return make_dgrad<T, float>(c, dz, w, dx, accumulate);
        return make_dgrad<T, T>(c, dz, w, dx, accumulate);
    });
}

KernelResult make_narrow_wgrad(Context& c, const Operand& dz, const Operand& x, const Operand& dw, bool accumulate) {
    if (dw.count() == 0) return make_kernel([] {});
    return by_real(dz.dtype, [&]<class T>(T) -> KernelResult {
        constexpr int kRun = 16 / sizeof(T);
        if (whole_runs(x) && dw.cols % kRun == 0) return make_wgrad<T, kRun>(c, dz, x, dw, accumulate);
        return make_wgrad<T, 1>(c, dz, x, dw, accumulate);
    });
}

}  // namespace millrace::ops::cuda
