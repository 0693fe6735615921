#pragma once
// Which tables of kernels (simd_kernels.h) this processor can run.

#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {

/// The tables of this build that this processor can run, the fastest first; never empty.
std::vector<const SimdKernels*> tables();
/// The table with this id; an empty one stands for the fastest. The error names those that can run.
base::Result<const SimdKernels*> find_table(std::string_view id);

}  // namespace millrace::ops::cpu
