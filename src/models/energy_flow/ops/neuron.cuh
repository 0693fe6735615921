#pragma once
// The network that reads a flow's place and energy. A block takes tiles of 32 rows: a lane is a row, and each of the four warps
// has a quarter of every layer's units, in registers. What the next layer needs of the other warps goes through shared memory,
// where the weights lie too.

#include "models/energy_flow/ops/flow.h"
#include "models/energy_flow/ops/flow_device.cuh"
#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda::neuron {

constexpr int kHidden = kNeuronHidden, kFeatures = kNeuronFeatures, kIn = 4;
constexpr float kEps = 1e-5f;

/// The parameters one behind the other, in the order of the contract; every tensor begins at a multiple of four.
enum Start : int {
    kPlaceW = 0,
    kPlaceB = kPlaceW + 9,
    kW0 = kPlaceB + 3,
    kB0 = kW0 + kHidden * kIn,
    kG1 = kB0 + kHidden,
    kS1 = kG1 + kHidden,
    kW3 = kS1 + kHidden,
    kB3 = kW3 + kHidden * kHidden,
    kG4 = kB3 + kHidden,
    kS4 = kG4 + kHidden,
    kW6 = kS4 + kHidden,
    kB6 = kW6 + kFeatures * kHidden,
    kCount = kB6 + kFeatures
};
static_assert(kW0 % 4 == 0 && kCount % 4 == 0);

/// Where parameter `i` of the packed order lies in the span.
__device__ inline int place_of(const NeuronParams& p, int i) {
    constexpr int starts[kNeuronTensors] = {kPlaceW, kPlaceB, kW0, kB0, kG1, kS1, kW3, kB3, kG4, kS4, kW6, kB6};
    int at = p.offsets[0] + i;
#pragma unroll
    for (int t = 1; t < kNeuronTensors; ++t)
        if (i >= starts[t]) at = p.offsets[t] + i - starts[t];
    return at;
}

constexpr int kTileRows = 32, kParts = 4, kThreads = kTileRows * kParts;
constexpr int kOwn = kHidden / kParts, kOwnFeatures = kFeatures / kParts;
constexpr int kPitch = kTileRows + 4;  // columns begin four banks apart, at multiples of 16 bytes
__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % kTileRows; }
__device__ inline int part_of() { return static_cast<int>(threadIdx.x) / kTileRows; }

template <int Size>
__device__ void stage_tensor(float* to, const float* from) {
#pragma unroll
    for (int i = 0; i < Size; i += kThreads)
        if (const int at = i + static_cast<int>(threadIdx.x); at < Size) to[at] = from[at];
}

/// All threads of the block together; `to` holds kCount floats at a multiple of 16 bytes.
__device__ inline void stage_parameters(float* to, const float* params, const NeuronParams& p) {
    stage_tensor<kFeatures * kHidden>(to + kW6, params + p.offsets[10]);
    stage_tensor<kHidden * kHidden>(to + kW3, params + p.offsets[6]);
    stage_tensor<kHidden * kIn>(to + kW0, params + p.offsets[2]);
    stage_tensor<9>(to + kPlaceW, params + p.offsets[0]);
    stage_tensor<3>(to + kPlaceB, params + p.offsets[1]);
    stage_tensor<kHidden>(to + kB0, params + p.offsets[3]);
    stage_tensor<kHidden>(to + kG1, params + p.offsets[4]);
    stage_tensor<kHidden>(to + kS1, params + p.offsets[5]);
    stage_tensor<kHidden>(to + kB3, params + p.offsets[7]);
    stage_tensor<kHidden>(to + kG4, params + p.offsets[8]);
    stage_tensor<kHidden>(to + kS4, params + p.offsets[9]);
    stage_tensor<kFeatures>(to + kB6, params + p.offsets[11]);
    __syncthreads();
}

/// What the warps exchange about a row: a pair of sums over their units.
using Exchange = float2[kParts][kTileRows];

/// This thread's units of z become (z - mean) / std of the whole row; the result is 1 / std.
__device__ inline float normalize(float (&z)[kOwn], Exchange& exchange) {
    float mean = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) mean += z[i];
    mean /= kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) squares += (z[i] - mean) * (z[i] - mean);
    exchange[part_of()][lane_of()] = make_float2(mean, squares);
    __syncthreads();
    float2 parts[kParts];
    mean = squares = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
        parts[p] = exchange[p][lane_of()];
        mean += parts[p].x;
    }
    mean /= kParts;
#pragma unroll
    for (int p = 0; p < kParts; ++p) squares += parts[p].y + kOwn * (parts[p].x - mean) * (parts[p].x - mean);
    const float inv = 1 / sqrtf(squares / kHidden + kEps);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) z[i] = (z[i] - mean) * inv;
    return inv;
}

/// y[j] = bias[j] + sum over i of w[j][i] x[i] for M rows of w; x stands in columns of shared memory at this thread's row.
template <int M>
__device__ void affine(const float* w, const float* bias, const float* x, float (&y)[M]) {
#pragma unroll
    for (int j = 0; j < M; ++j) y[j] = bias[j];
#pragma unroll 2
    for (int i = 0; i < kHidden; i += 4) {
        float in[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) in[c] = x[(i + c) * kPitch];
#pragma unroll
        for (int j = 0; j < M; ++j) {
            const float4 four = *reinterpret_cast<const float4*>(w + j * kHidden + i);
            y[j] += four.x * in[0] + four.y * in[1] + four.z * in[2] + four.w * in[3];
        }
    }
}

/// This thread's units of one hidden layer.
struct Layer {
    float hat[kOwn], value[kOwn], slope[kOwn];  ///< behind the norm, behind GELU, GELU's slope
    float inv;
};

/// From `hat` before the norm through the remaining layer.
__device__ inline void finish(Layer& layer, const float* gain, const float* shift, Exchange& exchange) {
    layer.inv = normalize(layer.hat, exchange);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) gelu_and_slope(gain[i] * layer.hat[i] + shift[i], layer.value[i], layer.slope[i]);
}

/// What the network reads: the place behind its matrix, and the energy.
__device__ inline void read_in(const float* w, const float (&flow)[kIn], float (&in)[kIn]) {
#pragma unroll
    for (int o = 0; o < 3; ++o)
        in[o] =
            w[kPlaceB + o] + w[kPlaceW + 3 * o] * flow[0] + w[kPlaceW + 3 * o + 1] * flow[1] + w[kPlaceW + 3 * o + 2] * flow[2];
    in[3] = flow[3];
}

/// Both hidden layers; leaves the first one's values in the columns of `values`.
__device__ inline void forward(const float* w, const float (&in)[kIn], float* values, Exchange* exchange, Layer& first,
                               Layer& second) {
    const int unit = part_of() * kOwn;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
        const float4 row = *reinterpret_cast<const float4*>(w + kW0 + (unit + j) * kIn);
        first.hat[j] = w[kB0 + unit + j] + row.x * in[0] + row.y * in[1] + row.z * in[2] + row.w * in[3];
    }
    finish(first, w + kG1 + unit, w + kS1 + unit, exchange[0]);
#pragma unroll
    for (int j = 0; j < kOwn; ++j) values[(unit + j) * kPitch + lane_of()] = first.value[j];
    __syncthreads();
    affine(w + kW3 + unit * kHidden, w + kB3 + unit, values + lane_of(), second.hat);
    finish(second, w + kG4 + unit, w + kS4 + unit, exchange[1]);
}

}  // namespace millrace::ops::cuda::neuron
