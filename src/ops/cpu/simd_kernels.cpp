#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {

const SimdKernels& simd_kernels() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return simd_avx512();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return simd_avx2();
#endif
    return simd_portable();
}

}  // namespace millrace::ops::cpu
