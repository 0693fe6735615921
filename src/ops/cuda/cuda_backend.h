#pragma once
// The CUDA backend. src/ops/cuda defines it (and ops::cuda_available) when a CUDA compiler was found, src/ops/nocuda otherwise,
// so that callers need no #ifdef.

#include <memory>

#include "base/result.h"
#include "ops/backend.h"

namespace millrace::ops::cuda {

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace millrace::ops::cuda
