#pragma once
// The network that reads a flow's place and energy, one thread per row: activations in registers, weights in shared memory.

#include "ops/cuda/flow_device.cuh"

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

/// All threads of the block together; `to` holds kCount floats at a multiple of 16 bytes.
__device__ inline void stage_parameters(float* to, const float* params, const NeuronParams& p) {
    for (int i = static_cast<int>(threadIdx.x); i < kCount; i += static_cast<int>(blockDim.x)) to[i] = params[place_of(p, i)];
    __syncthreads();
}

/// bias + the dot product of a row of weights with x, both in the order of the columns.
template <int N>
__device__ float affine(const float* row, float bias, const float (&x)[N]) {
    static_assert(N % 4 == 0);
    float sum = bias;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 w = *reinterpret_cast<const float4*>(row + i);
        sum += w.x * x[i];
        sum += w.y * x[i + 1];
        sum += w.z * x[i + 2];
        sum += w.w * x[i + 3];
    }
    return sum;
}

/// z becomes (z - mean) / std; the result is 1 / std.
__device__ inline float normalize(float (&z)[kHidden]) {
    float mean = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kHidden; ++i) mean += z[i];
    mean /= kHidden;
#pragma unroll
    for (int i = 0; i < kHidden; ++i) squares += (z[i] - mean) * (z[i] - mean);
    const float inv = 1 / sqrtf(squares / kHidden + kEps);
#pragma unroll
    for (int i = 0; i < kHidden; ++i) z[i] = (z[i] - mean) * inv;
    return inv;
}

/// gelu(gain * hat + shift)
__device__ inline float behind_norm(float hat, float gain, float shift) { return activate(gain * hat + shift, Activation::gelu); }

/// A row's way to the second hidden layer: what its LayerNorms made of it.
struct Pass {
    float in[kIn];
    float first[kHidden], second[kHidden];  ///< normalized, before gain and shift
    float first_inv, second_inv;
};

__device__ inline void forward(const float* w, float x, float y, float z, float energy, Pass& p) {
#pragma unroll
    for (int o = 0; o < 3; ++o) p.in[o] = w[kPlaceB + o] + w[3 * o] * x + w[3 * o + 1] * y + w[3 * o + 2] * z;
    p.in[3] = energy;
#pragma unroll
    for (int o = 0; o < kHidden; ++o) p.first[o] = affine(w + kW0 + o * kIn, w[kB0 + o], p.in);
    p.first_inv = normalize(p.first);
    float hidden[kHidden];
#pragma unroll
    for (int i = 0; i < kHidden; ++i) hidden[i] = behind_norm(p.first[i], w[kG1 + i], w[kS1 + i]);
#pragma unroll
    for (int o = 0; o < kHidden; ++o) p.second[o] = affine(w + kW3 + o * kHidden, w[kB3 + o], hidden);
    p.second_inv = normalize(p.second);
}

}  // namespace millrace::ops::cuda::neuron
