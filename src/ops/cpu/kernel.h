#pragma once
// How the CPU backend makes kernels: one factory per operator, which checks the record's shapes and returns something to run.

#include <memory>
#include <utility>

#include "ops/cpu/context.h"
#include "ops/cpu/denormals.h"
#include "ops/op.h"

namespace millrace::ops::cpu {

using KernelResult = base::Result<std::unique_ptr<Kernel>>;
using Factory = KernelResult (*)(Context& context, const Bound& bound);

/// A kernel that calls `body` with denormals flushed. The body must not throw or allocate.
template <class Body>
KernelResult make_kernel(Body body) {
    class BodyKernel final : public Kernel {
    public:
        explicit BodyKernel(Body&& work) : work_(std::move(work)) {}
        void run() noexcept override {
            FlushDenormals flush;
            work_();
        }

    private:
        Body work_;
    };
    return std::unique_ptr<Kernel>(std::make_unique<BodyKernel>(std::move(body)));
}

/// Collects the first mismatch between a record's operands and the contract.
class Checker {
public:
    explicit Checker(const Bound& bound) : bound_(bound) {}

    /// The slot must be there with this type and shape. Zero-sized views need no memory.
    Checker& require(int slot, tensor::DType dtype, int k, int g, int rows, int cols);
    /// The same when the slot is there.
    Checker& allow(int slot, tensor::DType dtype, int k, int g, int rows, int cols);
    /// The same shape and type as another slot.
    Checker& like(int slot, int other);
    Checker& allow_like(int slot, int other);
    Checker& state(int slot, int k);
    Checker& that(bool condition, const char* message);

    [[nodiscard]] base::Status status() const;

private:
    const Bound& bound_;
    std::string problem_;
};

/// c (+) = a b, or a^T b: the products of the gradients.
KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate);

// One factory per operator.
KernelResult make_step_begin(Context& context, const Bound& bound);
KernelResult make_micro_end(Context& context, const Bound& bound);
KernelResult make_metrics_push(Context& context, const Bound& bound);
KernelResult make_fill(Context& context, const Bound& bound);
KernelResult make_copy(Context& context, const Bound& bound);
KernelResult make_gather_images(Context& context, const Bound& bound);
KernelResult make_gather_rows(Context& context, const Bound& bound);
KernelResult make_dense_forward(Context& context, const Bound& bound);
KernelResult make_dense_backward(Context& context, const Bound& bound);
KernelResult make_linear_dgrad(Context& context, const Bound& bound);
KernelResult make_linear_wgrad(Context& context, const Bound& bound);
KernelResult make_add(Context& context, const Bound& bound);
KernelResult make_pointwise_forward(Context& context, const Bound& bound);
KernelResult make_pointwise_backward(Context& context, const Bound& bound);
KernelResult make_layernorm_forward(Context& context, const Bound& bound);
KernelResult make_layernorm_backward(Context& context, const Bound& bound);
KernelResult make_embedding_forward(Context& context, const Bound& bound);
KernelResult make_embedding_backward(Context& context, const Bound& bound);
KernelResult make_cross_entropy(Context& context, const Bound& bound);
KernelResult make_mse(Context& context, const Bound& bound);
KernelResult make_cosine_diversity(Context& context, const Bound& bound);
KernelResult make_grad_norm(Context& context, const Bound& bound);
KernelResult make_optimizer(Context& context, const Bound& bound);
KernelResult make_column_sum(Context& context, const Bound& bound);
KernelResult make_gru_forward(Context& context, const Bound& bound);
KernelResult make_gru_backward(Context& context, const Bound& bound);
KernelResult make_flow_begin(Context& context, const Bound& bound);
KernelResult make_flow_begin_backward(Context& context, const Bound& bound);
KernelResult make_flow_neuron_forward(Context& context, const Bound& bound);
KernelResult make_flow_neuron_backward(Context& context, const Bound& bound);
KernelResult make_flow_move(Context& context, const Bound& bound);
KernelResult make_flow_move_backward(Context& context, const Bound& bound);
KernelResult make_flow_spawn(Context& context, const Bound& bound);
KernelResult make_flow_spawn_state(Context& context, const Bound& bound);
KernelResult make_flow_spawn_backward(Context& context, const Bound& bound);
KernelResult make_flow_spawn_state_backward(Context& context, const Bound& bound);
KernelResult make_flow_count(Context& context, const Bound& bound);
KernelResult make_flow_lay(Context& context, const Bound& bound);
KernelResult make_flow_lay_backward(Context& context, const Bound& bound);
KernelResult make_flow_rest(Context& context, const Bound& bound);
KernelResult make_flow_rest_backward(Context& context, const Bound& bound);
KernelResult make_flow_clear(Context& context, const Bound& bound);
KernelResult make_token_embed(Context& context, const Bound& bound);
KernelResult make_token_embed_backward(Context& context, const Bound& bound);
KernelResult make_attention_forward(Context& context, const Bound& bound);
KernelResult make_attention_backward(Context& context, const Bound& bound);
KernelResult make_masked_mean(Context& context, const Bound& bound);
KernelResult make_masked_mean_backward(Context& context, const Bound& bound);
KernelResult make_token_cross_entropy(Context& context, const Bound& bound);
KernelResult make_token_choose(Context& context, const Bound& bound);

}  // namespace millrace::ops::cpu
