#pragma once
// How the CPU backend makes kernels: one factory per operator, which returns something to run.

#include <algorithm>
#include <memory>
#include <utility>

#include "ops/cpu/context.h"
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

/// c (+) = a b, or a^T b: the products of the gradients.
KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate);

/// Calls body(member, group, col, cols) for blocks of at most kMaxColumns columns of every matrix; on all threads from `least`
/// elements on.
template <class Body>
void for_each_columns(Context& context, const tensor::Operand& shape, Body&& body,
                      std::int64_t least = kParallelElements) noexcept {
    const bool parallel = shape.count() >= least;
    const Blocks columns(shape.cols, 16, parallel ? 2 * context.pool.threads() : 1, kMaxColumns);
    context.pool.for_each_if(parallel, shape.k * shape.g * columns.count, [&](int task, int) {
        const int part = task % columns.count, batch = task / columns.count, col = columns.begin(part);
        body(batch / shape.g, batch % shape.g, col, columns.end(part) - col);
    });
}

/// Columns [col, col + cols) of the first row of a slot (+) = values; nothing where the slot is absent.
inline void put_columns(const Bound& b, int slot, int member, int group, int col, int cols, const float* values) noexcept {
    if (!b[slot].present()) return;
    float* out = b[slot].at<float>(member, group) + col;
    const bool add = b.accumulates(slot);
    for (int i = 0; i < cols; ++i) out[i] = add ? out[i] + values[i] : values[i];
}

/// Calls body(matrix, begin, end) for pieces of the rows of all matrices, on all threads when there is enough to do.
template <class Body>
void for_each_piece(Context& context, int matrices, int rows, std::int64_t elements_per_row, Body&& body) noexcept {
    const std::int64_t all = std::int64_t{matrices} * rows;
    const bool parallel = all > 1 && all * elements_per_row >= kParallelElements;
    const std::int64_t parts = parallel ? std::min<std::int64_t>(all, 4 * context.pool.threads()) : 1;
    context.pool.for_each_if(parallel, static_cast<int>(parts), [&](int part, int) {
        const std::int64_t end = all * (part + 1) / parts;
        for (std::int64_t at = all * part / parts; at < end;) {
            const std::int64_t first = at % rows, last = std::min<std::int64_t>(rows, first + end - at);
            body(static_cast<int>(at / rows), static_cast<int>(first), static_cast<int>(last));
            at += last - first;
        }
    });
}

}  // namespace millrace::ops::cpu
