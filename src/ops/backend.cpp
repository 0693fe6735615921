#include "ops/backend.h"

#include <string>

#include "ops/cpu/cpu_backend.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/ref/ref_backend.h"

namespace millrace::ops {

const char* name_of(DeviceKind kind) {
    switch (kind) {
        case DeviceKind::ref: return "ref";
        case DeviceKind::cpu: return "cpu";
        case DeviceKind::cuda: return "cuda";
    }
    return "?";
}

base::Error missing_operator(const OpDef& op, DeviceKind kind) {
    return base::Error{std::string("operator ") + op.name + " has no " + name_of(kind) + " backend"};
}

base::Result<std::unique_ptr<Backend>> make_backend(DeviceKind kind, const BackendOptions& options) {
    switch (kind) {
        case DeviceKind::ref: return ref::make_backend(options);
        case DeviceKind::cpu: return cpu::make_backend(options);
        case DeviceKind::cuda: return cuda::make_backend(options);
    }
    return base::Error{std::string("the ") + name_of(kind) + " backend is not part of this build"};
}

}  // namespace millrace::ops
