#pragma once
// Runs of consecutive elements as float, in 16-byte accesses where they are whole.

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

template <int V>
__device__ inline void load_run(const float* from, float (&v)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(from + i);
            v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] = from[i];
    }
}

/// Eight bf16 or f16 as float.
template <class T>
__device__ inline void spread(const uint4& eight, float* v) {
    const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        v[2 * w] = low_of<T>(words[w]);
        v[2 * w + 1] = high_of<T>(words[w]);
    }
}

template <int V, class T>
requires(sizeof(T) == 2) __device__ inline void load_run(const T* from, float (&v)[V]) {
    if constexpr (V % 8 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 8) spread<T>(*reinterpret_cast<const uint4*>(from + i), v + i);
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) v[i] = load(from + i);
    }
}

template <int V>
__device__ inline void store_run(float* to, const float (&v)[V]) {
    if constexpr (V % 4 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 4) *reinterpret_cast<float4*>(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) to[i] = v[i];
    }
}

template <int V, class T>
requires(sizeof(T) == 2) __device__ inline void store_run(T* to, const float (&v)[V]) {
    if constexpr (V % 8 == 0) {
#pragma unroll
        for (int i = 0; i < V; i += 8) {
            std::uint32_t words[4];
#pragma unroll
            for (int w = 0; w < 4; ++w) words[w] = pack<T>(v[i + 2 * w], v[i + 2 * w + 1]);
            *reinterpret_cast<uint4*>(to + i) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < V; ++i) store(to + i, v[i]);
    }
}

/// Two numbers as the nearest ones of bf16. What those leave stays in x and y, exactly.
__device__ inline std::uint32_t take_pair(float& x, float& y) {
    const std::uint32_t nearest = pack<bf16>(x, y);
    x -= __uint_as_float(nearest << 16);
    y -= __uint_as_float(nearest & 0xffff0000u);
    return nearest;
}

/// Whether every row of the operand begins at a multiple of 16 bytes; an absent one does not matter.
inline bool whole_runs(const tensor::Operand& o) {
    if (!o.present()) return true;
    const auto size = static_cast<std::int64_t>(tensor::size_of(o.dtype));
    const auto whole = [size](std::int64_t stride) { return stride * size % 16 == 0; };
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && (o.rows <= 1 || whole(o.stride_row)) &&
           (o.g <= 1 || whole(o.stride_g)) && (o.k <= 1 || whole(o.stride_k));
}

/// Consecutive elements as they are stored, in one access: until they are needed as float, bf16 takes half the registers.
template <class T, int V>
struct alignas(V * sizeof(T)) Run {
    T v[V];
};

/// Memory that begins at a multiple of V elements.
template <int V, class T>
__device__ Run<T, V> load_as_stored(const T* from) {
    return *reinterpret_cast<const Run<T, V>*>(from);
}
template <class T, int V>
__device__ void store_as_stored(T* to, const Run<T, V>& run) {
    *reinterpret_cast<Run<T, V>*>(to) = run;
}

}  // namespace millrace::ops::cuda
