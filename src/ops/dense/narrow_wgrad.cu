// The weight gradient of a layer with very few outputs over very many rows: a matter of bandwidth, for which products with tiles
// are made too wide. For each output a sum over rows, weighted by its gradient.

#include "ops/dense/column_sum.cuh"

namespace millrace::ops::cuda {
namespace {

using column_sums::Plan;
using tensor::Operand;

constexpr int kMostOutputs = 4;

template <class T>
struct NarrowArgs {
    Mat<const T> dz, x;
    int groups, rows, cols, outputs;
};

/// partial [outputs][matrices][chunks][cols].
template <class T, int V>
__global__ void __launch_bounds__(column_sums::kThreads)
    narrow_wgrad_kernel(const __grid_constant__ NarrowArgs<T> a, float* partial, int chunk_rows) {
    struct Values {
        Run<T, V> x;
        float dz[kMostOutputs];
    };
    begin_kernel();
    const int k = blockIdx.z / a.groups, g = blockIdx.z % a.groups, col = column_sums::first_column<V>();
    float sum[kMostOutputs][V] = {};
    const auto fetch = [&](int r, Values& at) {
        at.x = load_as_stored<V>(a.x.row(k, g, r) + col);
#pragma unroll
        for (int o = 0; o < kMostOutputs; ++o) at.dz[o] = o < a.outputs ? load(a.dz.row(k, g, r) + o) : 0.0f;
    };
    const auto add = [&](int, const Values& at) {
        float x[V];
        load_run<V>(at.x.v, x);
#pragma unroll
        for (int o = 0; o < kMostOutputs; ++o)
#pragma unroll
            for (int i = 0; i < V; ++i) sum[o][i] += at.dz[o] * x[i];
    };
    if (col < a.cols) column_sums::over_rows<Values>(a.rows, chunk_rows, fetch, add);
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o) {
        if (o >= a.outputs) break;
        if (o > 0) __syncthreads();  // the sums before have been read
        column_sums::put_partial<V>(partial + std::int64_t{o} * gridDim.z * gridDim.x * a.cols, a.cols, sum[o]);
    }
}

template <class T, int V>
KernelResult make_wgrad(Context& c, const Operand& dz, const Operand& x, const Operand& dw, bool accumulate) {
    const NarrowArgs<T> a{dz, x, dz.g, dz.rows, dw.cols, dz.cols};
    const Plan p = column_sums::plan_for(dz.rows, dw.cols, V, 2, 512);
    const dim3 grid(p.chunks, p.wide, dw.k * dw.g);
    const std::size_t floats = std::size_t{grid.x} * grid.z * static_cast<std::size_t>(dw.cols);
    MILLRACE_LET(table, zero_table(c, sizeof(float) * floats * static_cast<std::size_t>(dw.rows)));
    std::vector<ChunkSums> sums;
    for (int o = 0; o < dw.rows; ++o) {
        Operand row = dw;
        row.rows = 1;
        row.data = dw.at<float>(0, 0, o);
        const float* partial = static_cast<float*>(table) + static_cast<std::size_t>(o) * floats;
        sums.push_back({row, partial, p.chunks, dw.cols, accumulate, table});
    }
    auto chunks = make_launch(c, narrow_wgrad_kernel<T, V>, grid, dim3(p.lanes, p.height), 0, a, table, p.chunk_rows);
    return with_sums(c, std::move(chunks), sums);
}

}  // namespace

KernelResult make_narrow_wgrad(Context& c, const Operand& dz, const Operand& x, const Operand& dw, bool accumulate) {
    if (dw.count() == 0) return make_kernel([] {});
    return by_real(dz.dtype, [&]<class T>(T) -> KernelResult {
        constexpr int kRun = 16 / sizeof(T);
        if (whole_runs(x) && dw.cols % kRun == 0) return make_wgrad<T, kRun>(c, dz, x, dw, accumulate);
        return make_wgrad<T, 1>(c, dz, x, dw, accumulate);
    });
}

}  // namespace millrace::ops::cuda
