#include "ops/ref/ref_backend.h"

#include <array>
#include <cstring>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "ops/ref/kernels.h"
#include "ops/region.h"

namespace millrace::ops::ref {
namespace {

/// In the order of OpId; an operator without a function is refused by prepare().
constexpr std::array<Run, kOpCount> kTable = {
    run_step_begin,
    run_micro_end,
    run_metrics_push,
    run_fill,
    run_copy,
    run_gather_images,
    run_gather_rows,
    run_dense_forward,
    run_dense_backward,
    run_linear_dgrad,
    run_linear_wgrad,
    run_add,
    run_pointwise_forward,
    run_pointwise_backward,
    run_layernorm_forward,
    run_layernorm_backward,
    run_embedding_forward,
    run_embedding_backward,
    run_cross_entropy,
    run_mse,
    run_cosine_diversity,
    run_grad_norm,
    run_optimizer,
    run_column_sum,
    run_gru_forward,
    run_gru_backward,
    run_flow_begin,
    run_flow_begin_backward,
    run_flow_neuron_forward,
    run_flow_neuron_backward,
    run_flow_move,
    run_flow_move_backward,
    run_flow_spawn,
    run_flow_spawn_state,
    run_flow_spawn_backward,
    run_flow_spawn_state_backward,
    run_flow_count,
    run_flow_lay,
    run_flow_lay_backward,
    run_flow_rest,
    run_flow_rest_backward,
    run_flow_clear,
    run_token_embed,
    run_token_embed_backward,
    run_attention_forward,
    run_attention_backward,
    run_masked_mean,
    run_masked_mean_backward,
    run_token_cross_entropy,
    run_token_choose,
};

class RefKernel : public Kernel {
public:
    RefKernel(const Bound& bound, Run function) : bound_(bound), function_(function) {}
    void run() noexcept override { function_(bound_); }

private:
    Bound bound_;
    Run function_;
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
    if (record.op == OpId::copy || record.op == OpId::fill) return base::ok();
    for (int slot = 0; slot < slot_count(record.op); ++slot) {
        const tensor::Operand& operand = bound[slot];
        const bool floating = operand.dtype == tensor::DType::f32 || operand.dtype == tensor::DType::bf16;
        const bool copy16 = record.op == OpId::optimizer && slot == optimizer::copy16;
        if (operand.present() && floating && !copy16)
            return base::Error{fmt::format("operator {} has a slot {} of {}; the ref backend computes in f64", name_of(record.op),
                                           slot_name(record.op, slot), tensor::name_of(operand.dtype)),
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

    base::Result<std::vector<std::unique_ptr<Kernel>>> prepare(std::span<const Bound> records) override {
        std::vector<std::unique_ptr<Kernel>> kernels;
        for (std::size_t i = 0; i < records.size(); ++i) {
            const Record& record = *records[i].record;
            const Run function = kTable[static_cast<std::size_t>(record.op)];
            if (function == nullptr) return missing_operator(record.op, DeviceKind::ref);
            MILLRACE_TRY(check_types(record, records[i]));
            kernels.push_back(std::make_unique<RefKernel>(records[i], function));
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
