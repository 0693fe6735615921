#pragma once
// Blocks that run together and read each other's shared memory (compute capability 9.0 and newer).

#include "ops/cuda/device.cuh"

namespace millrace::ops::cuda {

/// Pieces of a cluster: each block publishes values in shared memory, all meet, and each reads every rank's in order.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
#if __CUDA_ARCH__ >= 900
/// Where block `rank` has what lies at `at` in this block's shared memory.
__device__ inline std::uint32_t address_of_rank(const void* at, int rank) {
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(at))), "r"(rank));
    return remote;
}
#endif
__device__ inline float read_rank(const float* at, int rank) {
    float value = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_of_rank(at, rank)) : "memory");
#else
    (void)rank;
    value = *at;
#endif
    return value;
}
__device__ inline float4 read_rank(const float4* at, int rank) {
#if __CUDA_ARCH__ >= 900
    float4 value;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address_of_rank(at, rank))
                 : "memory");
    return value;
#else
    (void)rank;
    return *at;
#endif
}

/// Everything that the threads of the kParts blocks wrote is there for all of them.
template <int kParts>
__device__ inline void meet() {
    if constexpr (kParts == 1) {
        __syncthreads();
    } else {
        cluster_arrive();
        cluster_wait();
    }
}

/// The same with `between` while they wait for each other. What it writes is not there for the others: arriving waits until
/// all that was written before has arrived, so stores to global memory belong here.
template <int kParts, class Between>
__device__ inline void meet(Between between) {
    if constexpr (kParts > 1) cluster_arrive();
    between();
    if constexpr (kParts > 1)
        cluster_wait();
    else
        __syncthreads();
}

/// Writes to the place of block `rank` that `at` is of this one.
__device__ inline void put_at(int rank, void* at, const uint4& v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address_of_rank(at, rank)), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
#endif
}
__device__ inline void put_at(int rank, void* at, const uint2& v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.v2.b32 [%0], {%1,%2};" ::"r"(address_of_rank(at, rank)), "r"(v.x), "r"(v.y) : "memory");
#endif
}
__device__ inline void put_at(int rank, void* at, std::uint32_t v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(address_of_rank(at, rank)), "r"(v) : "memory");
#endif
}

/// The same place of all blocks.
template <int kParts, class Word>
__device__ inline void put_everywhere(void* at, const Word& v) {
    if constexpr (kParts == 1) {
        *static_cast<Word*>(at) = v;
    } else {
#pragma unroll
        for (int rank = 0; rank < kParts; ++rank) put_at(rank, at, v);
    }
}

}  // namespace millrace::ops::cuda
