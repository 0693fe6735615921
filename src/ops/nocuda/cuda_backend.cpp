#include "ops/cuda/cuda_backend.h"

namespace millrace::ops {

base::Status cuda_available() { return base::Error{"built without CUDA; rebuild with nvcc on the PATH, or use --device cpu"}; }
bool cuda_lacks_bf16() { return false; }

namespace cuda {

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions&) { return cuda_available().error(); }

}  // namespace cuda
}  // namespace millrace::ops
