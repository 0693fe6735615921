#pragma once
// Runs of consecutive elements as they are stored, in one access: until they are needed as float, bf16 takes half the registers.

#include <cuda_runtime.h>

namespace millrace::ops::cuda {

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
