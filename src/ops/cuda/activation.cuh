#pragma once
// Activations of values that are stored in 16 bits: within 2e-5 of themselves, a twentieth of what rounding to f16 may add. And
// dropout of whole runs.

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

/// The normal distribution at u: its density, and what lies beyond |u| divided by the density, t P(t) with t = 1 / (1 + 0.36
/// |u|).
struct NormalTail {
    float density, t, p;
};
__device__ inline NormalTail normal_tail(float u) {
    NormalTail tail;
    tail.density = exp2_fast(fmaf(-0.72134752f * u, u, -1.32574806f));
    tail.t = reciprocal_fast(fmaf(0.36f, fabsf(u), 1.0f));
    tail.p = fmaf(-0.235945314f, tail.t, 0.605381727f);
    tail.p = fmaf(tail.p, tail.t, 0.124258034f);
    tail.p = fmaf(tail.p, tail.t, 0.403459638f);
    tail.p = fmaf(tail.p, tail.t, 0.35618192f);
    return tail;
}
/// Relative, so that the left tail keeps its digits.
__device__ inline float gelu_rounded(float u) {
    const NormalTail tail = normal_tail(u);
    return fmaf(-fabsf(u) * tail.density * tail.t, tail.p, fmaxf(u, 0.0f));
}
__device__ inline float gelu_slope_rounded(float u) {
    const NormalTail tail = normal_tail(u);
    const float left = tail.density * fmaf(tail.p, tail.t, -fabsf(u));
    return u > 0 ? 1 - left : left;
}

__device__ inline float sigmoid_rounded(float u) { return reciprocal_fast(1 + exp2_fast(-1.44269504f * u)); }
__device__ inline float tanh_rounded(float u) { return fmaf(-2.0f, reciprocal_fast(1 + exp2_fast(2.88539008f * u)), 1.0f); }

/// v of each element of N runs becomes f(v, run, i); one branch is for all of them.
template <int N, int V, class F>
__device__ inline void each_of(float (&v)[N][V], F f) {
#pragma unroll
    for (int i = 0; i < N * V; ++i) v[i / V][i % V] = f(v[i / V][i % V], i / V, i % V);
}
template <int N, int V>
__device__ inline void activate_rounded(float (&v)[N][V], Activation a) {
    switch (a) {
        case Activation::none: return;
        case Activation::relu: return each_of(v, [](float u, int, int) { return activate(u, Activation::relu); });
        case Activation::gelu: return each_of(v, [](float u, int, int) { return gelu_rounded(u); });
        case Activation::tanh: return each_of(v, [](float u, int, int) { return tanh_rounded(u); });
        case Activation::sigmoid: return each_of(v, [](float u, int, int) { return sigmoid_rounded(u); });
    }
}
/// v times the slopes at u.
template <int N, int V>
__device__ inline void slope_rounded(float (&v)[N][V], const float (&u)[N][V], Activation a) {
    switch (a) {
        case Activation::none: return;
        case Activation::relu: return each_of(v, [&](float d, int half, int i) { return u[half][i] > 0 ? d : 0; });
        case Activation::gelu: return each_of(v, [&](float d, int half, int i) { return d * gelu_slope_rounded(u[half][i]); });
        case Activation::tanh:
            return each_of(v, [&](float d, int half, int i) {
                const float t = tanh_rounded(u[half][i]);
                return d * fmaf(-t, t, 1.0f);
            });
        case Activation::sigmoid:
            return each_of(v, [&](float d, int half, int i) {
                const float s = sigmoid_rounded(u[half][i]);
                return d * fmaf(-s, s, s);
            });
    }
}

/// The same of a run of values that are stored as T.
template <class T, int V>
__device__ inline void activate_run(float (&v)[1][V], Activation a) {
    if constexpr (sizeof(T) == 2)
        activate_rounded(v, a);
    else
        each_of(v, [&](float u, int, int) { return activate(u, a); });
}
template <class T, int V>
__device__ inline void slope_run(float (&v)[1][V], const float (&u)[1][V], Activation a) {
    if constexpr (sizeof(T) == 2)
        slope_rounded(v, u, a);
    else
        each_of(v, [&](float d, int, int i) { return d * activation_slope(u[0][i], a); });
}

/// v times the factors of elements `element` and following, and those of further runs `apart` further on each. A whole run begins
/// at a multiple of four elements.
template <int N, int V>
__device__ inline void drop_runs(const DropoutKey& key, const DropoutRule& rule, std::uint64_t element, std::uint64_t apart,
                                 bool whole, float (&v)[N][V]) {
    if (rule.threshold == 0) return;
    std::uint32_t kept = 0;
    if (whole) {
#pragma unroll 2
        for (int i = 0; i < N * V; i += 4) {
            const std::uint64_t first = element + i / V * apart + i % V;
            const auto bits = base::random_block(key.seed, key.step, key.micro, key.op, static_cast<std::uint32_t>(first >> 2));
#pragma unroll
            for (int j = 0; j < 4; ++j) kept |= (bits.v[j] >= rule.threshold ? 1u : 0u) << (i + j);
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < N * V; ++i) kept |= (dropout_factor(key, rule, element + i / V * apart + i % V) != 0 ? 1u : 0u) << i;
    }
#pragma unroll
    for (int i = 0; i < N * V; ++i) v[i / V][i % V] *= (kept >> i & 1) != 0 ? rule.factor : 0;
}

}  // namespace millrace::ops::cuda
