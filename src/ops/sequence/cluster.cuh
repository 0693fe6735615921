#pragma once
// Blocks of a cluster that work on the same rows: what one of them finds goes to the shared memory of all of them.

#include "ops/tile/mma.cuh"

namespace millrace::ops::cuda::sequence {

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

}  // namespace millrace::ops::cuda::sequence
