#include "ops/ref/ref_backend.h"

#include <memory>

#include <fmt/format.h>

#include "ops/fused.h"
#include "ops/host_backend.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {
namespace {

class RefKernel : public Kernel {
public:
    RefKernel(const Bound& bound, void (*function)(const Bound&)) : bound_(bound), function_(function) {}
    void run() noexcept override { function_(bound_); }

private:
    Bound bound_;
    void (*function_)(const Bound&);
};

/// Floating operands are f64, but for those whose type is a matter of the operator: copy, fill and the optimizer's 16-bit copy.
base::Status check_types(const Record& record, const Bound& bound) {
    if (record.op == &copy::kDef || record.op == &fill::kDef) return base::ok();
    for (int slot = 0; slot < record.op->slot_count(); ++slot) {
        const tensor::Operand& operand = bound[slot];
        const bool floating = operand.dtype == tensor::DType::f32 || operand.dtype == tensor::DType::bf16;
        const bool copy16 = record.op == &optimizer::kDef && slot == optimizer::copy16;
        if (operand.present() && floating && !copy16)
            return base::Error{fmt::format("operator {} has a slot {} of {}; the ref backend computes in f64", record.op->name,
                                           record.op->slot(slot).name, tensor::name_of(operand.dtype)),
                               record.layer};
    }
    return base::ok();
}

class RefBackend : public HostBackend {
public:
    explicit RefBackend(const BackendOptions& options) : off_(options.rewrites_off) {}
    DeviceKind kind() const override { return DeviceKind::ref; }
    std::string description() const override { return "reference, one thread, f64"; }

    [[nodiscard]] Match match(const Rewrite& rewrite, const Window& window) const override {
        return rewrite.ref == nullptr || is_off(rewrite, off_) ? Match{} : rewrite.ref(window);
    }
    base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records,
                                                               std::span<const Section> sections) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        for (std::size_t i = 0; i < records.size(); ++i) {
            const Record& record = *records[i].record;
            if (record.op->ref == nullptr) return missing_operator(*record.op, DeviceKind::ref);
            if (fused_params(record) == nullptr)
                MILLRACE_TRY(check_types(record, records[i]));
            else
                for (const Bound& part : BoundParts(records[i]).parts) MILLRACE_TRY(check_types(*part.record, part));
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
