#pragma once
// How the CPU backend makes kernels: one factory per operator, which checks the record's shapes and returns something to run.

#include <memory>
#include <utility>

#include "ops/cpu/context.h"
#include "ops/cpu/denormals.h"
#include "ops/op.h"

namespace millrace::ops::cpu {

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
    Checker& groups(int slot, int k);
    Checker& segments(int slot);
    Checker& that(bool condition, const char* message);

    [[nodiscard]] base::Status status() const;

private:
    const Bound& bound_;
    std::string problem_;
};

/// c (+) = a b, or a^T b: the products of the gradients.
KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate);

/// Calls body(member, begin, end) for pieces of the rows of all members, on all threads when there is enough to do.
template <class Body>
void for_each_piece(Context& context, int members, int rows, std::int64_t elements_per_row, Body&& body) noexcept {
    const bool parallel = members * rows * elements_per_row >= kParallelElements;
    const Blocks pieces(rows, 16, parallel ? 4 * context.pool.threads() : 1);
    context.pool.for_each_if(parallel, members * pieces.count, [&](int task, int) {
        const int piece = task % pieces.count;
        body(task / pieces.count, pieces.begin(piece), pieces.end(piece));
    });
}

}  // namespace millrace::ops::cpu
