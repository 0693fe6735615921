#include "ops/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "ops/cpu/cpu_backend.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/host_backend.h"

namespace millrace::ops {
namespace {

/// For backends that are done with a kernel when it returns.
class HostTimeline final : public Timeline {
public:
    explicit HostTimeline(std::size_t marks) : times_(marks) {}
    void mark(std::size_t index) noexcept override { times_[index] = std::chrono::steady_clock::now(); }
    base::Result<double> milliseconds(std::size_t from, std::size_t to) override {
        return std::chrono::duration<double, std::milli>(times_[to] - times_[from]).count();
    }

private:
    std::vector<std::chrono::steady_clock::time_point> times_;
};

}  // namespace

base::Result<std::unique_ptr<Timeline>> Backend::make_timeline(std::size_t marks) {
    return std::unique_ptr<Timeline>(std::make_unique<HostTimeline>(marks));
}

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
