#include "ops/cuda/context.h"
#include "ops/cuda/flow_neuron.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda {
namespace {

using namespace neuron;
using tensor::Operand;

template <class T>
struct ForwardArgs {
    Flows flows;
    Mat<const float> params;
    Mat<T> out;
    int rows, cols;
    NeuronParams p;
};

/// V: how many columns a store takes.
template <class T, int V>
__global__ void __launch_bounds__(kFlowThreads) neuron_forward_kernel(const __grid_constant__ ForwardArgs<T> a) {
    __shared__ __align__(16) float w[kCount];
    begin_kernel();
    const int row = flow_row(), k = blockIdx.z;
    const bool live = row < a.rows && a.flows.alive(k, row);
    if (__syncthreads_or(live)) stage_parameters(w, a.params.row(k, 0, 0), a.p);
    if (row >= a.rows) return;
    T* out = a.out.row(k, 0, row);
    if (!live) {
        const float zeros[V] = {};
        for (int c = 0; c < a.cols; c += V) store_run<V>(out + c, zeros);
        return;
    }
    const float* flow = a.flows.table.row(k, 0, row);
    const float energy = flow[flow::energy];
    Pass pass;
    forward(w, flow[flow::x], flow[flow::y], flow[flow::z], energy, pass);
    float hidden[kHidden];
#pragma unroll
    for (int i = 0; i < kHidden; ++i) hidden[i] = behind_norm(pass.second[i], w[kG4 + i], w[kS4 + i]);
#pragma unroll 1
    for (int c = 0; c < kFeatures; c += V) {
        float features[V];
#pragma unroll
        for (int i = 0; i < V; ++i) features[i] = affine(w + kW6 + (c + i) * kHidden, w[kB6 + c + i], hidden);
        store_run<V>(out + c, features);
    }
    for (int c = kFeatures; c < a.cols; c += V) {
        float rest[V] = {};
        if (c == kFeatures) rest[0] = energy;
        store_run<V>(out + c, rest);
    }
}

}  // namespace

KernelResult make_flow_neuron_forward(Context& c, const Bound& b) {
    namespace at = flow_neuron_forward;
    const Operand &table = b[at::flow], &out = b[at::out];
    if (out.count() == 0) return make_kernel([] {});
    if (out.cols <= kFeatures)
        return base::Error{"the neuron's output has " + std::to_string(out.cols) + " columns; it needs at least " +
                           std::to_string(kFeatures + 1)};
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        ForwardArgs<T> a{};
        a.flows = flows(table, b[at::counters]);
        a.params = mat<const float>(b[at::params]);
        a.out = mat<T>(out);
        a.rows = out.rows;
        a.cols = out.cols;
        a.p = b.params<NeuronParams>();
        const auto kernel = whole_runs(out) && out.cols % 8 == 0 ? neuron_forward_kernel<T, 8> : neuron_forward_kernel<T, 1>;
        return make_kernel(
            [stream = c.stream, kernel, grid = flow_grid(table), a] { launch(kernel, grid, dim3(kFlowThreads), 0, stream, a); });
    });
}

}  // namespace millrace::ops::cuda
