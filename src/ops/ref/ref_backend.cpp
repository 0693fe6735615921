#include "ops/ref/ref_backend.h"

#include <memory>

#include <fmt/format.h>
#include "ops/check.h"

#include "ops/fused.h"
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

class RefBackend : public HostBackend {
public:
    explicit RefBackend(const BackendOptions& options) : off_(options.rewrites_off) {}
    DeviceKind kind() const override { return DeviceKind::ref; }
    std::string description() const override { return "reference, one thread, f64"; }

    [[nodiscard]] Match match(const Rewrite& rewrite, const Window& window) const override {
        return rewrite.ref == nullptr || is_off(rewrite, off_) ? Match{} : rewrite.ref(window);
    }
    base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records, std::span<const Section> sections,
                                                               std::span<std::byte> /*scratch*/) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        for (std::size_t i = 0; i < records.size(); ++i) {
            const Record& record = *records[i].record;
            if (record.op->ref == nullptr) return missing_operator(*record.op, DeviceKind::ref);
            MILLRACE_TRY(check_record(record, kReals));
            kernels.push_back(std::make_unique<RefKernel>(records[i], record.op->ref));
            kernels.back()->first = i;
        }
        gather_regions(records, sections, kernels);
        return kernels;
    }

private:
    std::vector<std::string> off_;  ///< BackendOptions::rewrites_off
};

}  // namespace

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
    return std::unique_ptr<Backend>(std::make_unique<RefBackend>(options));
}

}  // namespace millrace::ops::ref
