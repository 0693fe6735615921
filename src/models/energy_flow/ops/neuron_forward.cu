#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/neuron.cuh"
#include "ops/cuda/context.h"

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
__global__ void __launch_bounds__(kThreads) neuron_forward_kernel(const __grid_constant__ ForwardArgs<T> a) {
    __shared__ __align__(16) float w[kCount], values[kHidden * kPitch];
    __shared__ Exchange exchange[2];
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x) * kTileRows + lane_of(), part = part_of(), k = blockIdx.z;
    const bool live = row < a.rows && a.flows.alive(k, row);
    const bool some = __syncthreads_or(live) != 0;
    float flow[kIn] = {}, features[kOwnFeatures] = {};
    if (live) {
        const float* from = a.flows.table.row(k, 0, row);
#pragma unroll
        for (int i = 0; i < kIn; ++i) flow[i] = from[i];  // x, y, z, energy
    }
    if (some) {
        stage_parameters(w, a.params.row(k, 0, 0), a.p);
        float in[kIn];
        Layer first, second;
        read_in(w, flow, in);
        forward(w, in, values, exchange, first, second);  // its last meeting has all behind their reading of `values`
#pragma unroll
        for (int j = 0; j < kOwn; ++j) values[(part * kOwn + j) * kPitch + lane_of()] = second.value[j];
        __syncthreads();
        affine(w + kW6 + part * kOwnFeatures * kHidden, w + kB6 + part * kOwnFeatures, values + lane_of(), features);
    }
    if (row >= a.rows) return;
    T* out = a.out.row(k, 0, row);
#pragma unroll
    for (int c = 0; c < kOwnFeatures; c += V) {
        float run[V];
#pragma unroll
        for (int i = 0; i < V; ++i) run[i] = live ? features[c + i] : 0.0f;
        store_run<V>(out + part * kOwnFeatures + c, run);
    }
    for (int c = kFeatures + part * V; c < a.cols; c += kParts * V) {
        float tail[V] = {};
        if (c == kFeatures) tail[0] = flow[flow::energy];
        store_run<V>(out + c, tail);
    }
}

}  // namespace

KernelResult make_flow_neuron_forward(Context& c, const Bound& b) {
    namespace at = flow_neuron_forward;
    const Operand &table = b[at::flow], &out = b[at::out];
    return by_real(out.dtype, [&]<class T>(T) -> KernelResult {
        const ForwardArgs<T> a{{table, b[at::counters]}, b[at::params], out, out.rows, out.cols, b.params<NeuronParams>()};
        const auto kernel = whole_runs(out) && out.cols % 8 == 0 ? neuron_forward_kernel<T, 8> : neuron_forward_kernel<T, 1>;
        const dim3 grid(blocks_for(out.rows, kTileRows), 1, out.k);
        return make_launch(c, kernel, grid, dim3(kThreads), 0, a);
    });
}

}  // namespace millrace::ops::cuda
