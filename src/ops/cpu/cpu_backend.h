#pragma once
// The CPU backend: f32 throughout, own threads, kernels run at once on the calling thread's order.

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {

/// The kernels are options.cpu_table, else those that the environment's MILLRACE_CPU names, else the fastest; a table that cannot
/// run here is an error. One caller at a time. Same seed, same bits, for any number of threads and any number of members per
/// program.
base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

/// The tables of this build that this processor can run, the fastest first; never empty.
std::vector<const SimdKernels*> tables();
/// The table with this id; an empty one stands for the fastest. The error names those that can run.
base::Result<const SimdKernels*> find_table(std::string_view id);

}  // namespace millrace::ops::cpu
