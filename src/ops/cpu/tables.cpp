#include "ops/cpu/tables.h"

#include <fmt/format.h>

#include <string>

namespace millrace::ops::cpu {

std::vector<const SimdKernels*> tables() {
    std::vector<const SimdKernels*> all;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) all.push_back(&avx512::simd_kernels);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&avx2::simd_kernels);
#endif
    all.push_back(&portable::simd_kernels);
    return all;
}

base::Result<const SimdKernels*> find_table(std::string_view id) {
    const std::vector<const SimdKernels*> all = tables();
    if (id.empty()) return all.front();
    std::string ids;
    for (const SimdKernels* table : all) {
        if (id == table->id) return table;
        ids += (ids.empty() ? "" : ", ") + std::string(table->id);
    }
    return base::Error{fmt::format("this machine has no CPU kernels '{}'; it can run {}", id, ids)};
}

}  // namespace millrace::ops::cpu
