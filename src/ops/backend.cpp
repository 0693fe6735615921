#include "ops/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ops/cpu/cpu_backend.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/host_backend.h"

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
    const std::vector<std::string> known = rewrite_names();
    for (const std::string& name : options.rewrites_off)
        if (name != "all" && std::find(known.begin(), known.end(), name) == known.end())
            return base::Error{fmt::format("there is no rewrite '{}'; known are all, {}", name, fmt::join(known, ", "))};
    switch (kind) {
        case DeviceKind::ref: return ref::make_backend(options);
        case DeviceKind::cpu: return cpu::make_backend(options);
        case DeviceKind::cuda: return cuda::make_backend(options);
    }
    return base::Error{std::string("the ") + name_of(kind) + " backend is not part of this build"};
}

}  // namespace millrace::ops
