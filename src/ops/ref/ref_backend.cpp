#include "ops/ref/ref_backend.h"

#include <cstring>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/ref/kernels.h"
#include "ops/region.h"

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

class HostMemory : public Memory {
public:
    explicit HostMemory(std::size_t bytes) : bytes_(new (std::align_val_t{kAlignment}) std::byte[bytes]), size_(bytes) {
        std::memset(bytes_.get(), 0, bytes);
    }
    std::byte* data() override { return bytes_.get(); }
    std::size_t size() const override { return size_; }

private:
    static constexpr std::size_t kAlignment = 256;
    struct Release {
        void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{kAlignment}); }
    };
    std::unique_ptr<std::byte, Release> bytes_;
    std::size_t size_;
};

/// Floating operands are f64, but for those whose type is a matter of the operator: copy, fill and the optimizer's bf16 copy.
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

class RefBackend : public Backend {
public:
    DeviceKind kind() const override { return DeviceKind::ref; }
    std::string description() const override { return "reference, one thread, f64"; }

    base::Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override {
        try {
            return std::unique_ptr<Memory>(std::make_unique<HostMemory>(bytes));
        } catch (const std::bad_alloc&) {
            return base::Error{fmt::format("no memory for a buffer of {} bytes", bytes)};
        }
    }
    base::Result<std::unique_ptr<Memory>> allocate_shared(std::size_t bytes) override { return allocate(bytes); }
    void upload(std::byte* device, const void* host, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(device, host, bytes);
    }
    void download(void* host, const std::byte* device, std::size_t bytes) override {
        if (bytes > 0) std::memcpy(host, device, bytes);
    }
    void synchronize() override {}
    base::Status check() override { return base::ok(); }

    base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records, std::span<const Group>) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        for (std::size_t i = 0; i < records.size(); ++i) {
            const Record& record = *records[i].record;
            if (record.op->ref == nullptr) return missing_operator(*record.op, DeviceKind::ref);
            MILLRACE_TRY(check_types(record, records[i]));
            kernels.push_back(std::make_unique<RefKernel>(records[i], record.op->ref));
            kernels.back()->first = i;
        }
        gather_regions(records, kernels);
        return kernels;
    }
};

}  // namespace

base::Result<std::unique_ptr<Backend>> make_backend(const BackendOptions&) {
    return std::unique_ptr<Backend>(std::make_unique<RefBackend>());
}

}  // namespace millrace::ops::ref
