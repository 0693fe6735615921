#pragma once
#include <memory>

#include "ops/backend.h"

namespace millrace::ops::cuda {

/// Copies on a stream of its own; the calling thread sleeps meanwhile.
base::Result<std::unique_ptr<Uploader>> make_cuda_uploader();

}  // namespace millrace::ops::cuda
