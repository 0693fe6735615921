#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "ops/backend.h"

namespace millrace::ops::cuda {

/// Events on `stream`, which must outlive the time line.
base::Result<std::unique_ptr<Timeline>> make_timeline(cudaStream_t stream, std::size_t marks);

}  // namespace millrace::ops::cuda
