#pragma once
// The CPU backend: f32 throughout, own threads, kernels run at once on the calling thread's order.

#include <memory>

#include "base/result.h"
#include "ops/backend.h"

namespace millrace::ops::cpu {

/// The kernels are options.cpu_table, else those that the environment's MILLRACE_CPU names, else the fastest; a table that cannot
/// run here is an error. One caller at a time. Same seed, same bits, for any number of threads and any number of members per
/// program.
base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace millrace::ops::cpu
