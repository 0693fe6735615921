#pragma once
// Copies from global to shared memory that run behind the threads which began them (compute capability 8.0 and newer).

#include <cstdint>

#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda {

using hopper::shared_address;

/// Begins a copy of 16 bytes to shared memory, of zeros unless they are `there`.
__device__ inline void copy16(std::uint32_t to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
#endif
}
/// The same of 4 bytes.
__device__ inline void copy4(std::uint32_t to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
#endif
}
/// Begins a copy of 8 or 16 bytes.
template <int kBytes>
__device__ void copy_run(std::uint32_t to, const void* from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
#endif
}
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for this thread's copies but those of the newest `kNewest` commits.
template <int kNewest>
__device__ inline void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

}  // namespace millrace::ops::cuda
