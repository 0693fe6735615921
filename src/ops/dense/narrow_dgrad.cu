// The gradient of a layer's input where it has very few outputs and very many rows: a matter of bandwidth.

#include "ops/cuda/context.h"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr int kMostOutputs = 4, kThreads = 256, kRun = 8;

/// dx (+)= dz w, a thread per run of V columns.
template <class T, class Out, int V>
__global__ void __launch_bounds__(kThreads)
    narrow_dgrad_kernel(Mat<const T> dz, Mat<const T> w, Mat<Out> dx, int groups, int rows, int runs, int outputs, bool add) {
    begin_kernel();
    const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    const int row = static_cast<int>(index / runs), c = static_cast<int>(index % runs) * V;
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    if (row >= rows) return;
    Out* to = dx.row(k, g, row) + c;
    float sum[V] = {};
    if (add) load_run<V>(to, sum);
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o)
        if (o < outputs) {
            const float from = load(dz.row(k, g, row) + o);
            float weights[V];
            load_run<V>(w.row(k, g, o) + c, weights);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += from * weights[i];
        }
    store_run<V>(to, sum);
}

}  // namespace

bool is_narrow(const Context& c, const Operand& dz) {
    return dz.rows >= c.library_rows && dz.cols > 0 && dz.cols <= kMostOutputs;
}

KernelResult make_narrow_dgrad(Context& c, const Operand& dz, const Operand& w, const Operand& dx, bool accumulate) {
    if (dx.count() == 0) return make_kernel([] {});
    const auto make = [&]<class T, class Out, int V>(T, Out, std::integral_constant<int, V>) {
        const int runs = dx.cols / V;
        const dim3 grid(blocks_for(std::int64_t{dx.rows} * runs, kThreads), 1, dx.k * dx.g);
        return make_launch(c, narrow_dgrad_kernel<T, Out, V>, grid, dim3(kThreads), 0, dz, w, dx, dx.g, dx.rows, runs, dz.cols,
                           accumulate);
    };
    const bool whole = dx.cols % kRun == 0 && whole_runs(w) && whole_runs(dx);
    const auto by_run = [&](auto real, auto out) -> KernelResult {
        return whole ? make(real, out, std::integral_constant<int, kRun>{}) : make(real, out, std::integral_constant<int, 1>{});
    };
    return by_real(dz.dtype,
                   [&]<class T>(T real) { return dx.dtype == DType::f32 ? by_run(real, float{}) : by_run(real, real); });
}

}  // namespace millrace::ops::cuda
