#include <memory>

#include "ops/check.h"
#include "ops/host_backend.h"

namespace millrace::ops::ref {
namespace {

constexpr tensor::DType kReals[] = {tensor::DType::f64};

class RefKernel : public Kernel {
public:
    RefKernel(const Bound& bound, void (*function)(const Bound&)) : bound_(bound), function_(function) {}
    void run() noexcept override { function_(bound_); }

private:
    Bound bound_;
    void (*function_)(const Bound&);
};

class RefBackend final : public HostBackend {
public:
    explicit RefBackend(const BackendOptions& options) : HostBackend(options) {}
    [[nodiscard]] DeviceKind kind() const override { return DeviceKind::ref; }
    [[nodiscard]] std::string description() const override { return "reference, one thread, f64"; }
    [[nodiscard]] Match match(const Rewrite& rewrite, const Window& window) const override {
        return rewrite.ref == nullptr || is_off(rewrite, off_) ? Match{} : rewrite.ref(window);
    }

private:
    [[nodiscard]] KernelResult make(const Bound& bound) override {
        const OpDef& op = *bound.record->op;
        if (op.ref == nullptr) return missing_operator(op, DeviceKind::ref);
        MILLRACE_TRY(check_record(*bound.record, kReals));
        return std::unique_ptr<Kernel>(std::make_unique<RefKernel>(bound, op.ref));
    }
};

}  // namespace

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
    return std::unique_ptr<Backend>(std::make_unique<RefBackend>(options));
}

}  // namespace millrace::ops::ref
