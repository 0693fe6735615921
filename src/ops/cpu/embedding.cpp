#include <algorithm>

#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {

using tensor::DType;
using tensor::Operand;

KernelResult make_embedding_forward(Context& context, const Bound& bound) {
    using namespace embedding_forward;
    const Operand from = bound[table], out = bound[y];
    Checker check(bound);
    check.require(table, DType::f32, out.k, 1, from.rows, out.cols).require(y, DType::f32, out.k, 1, out.rows, out.cols);
    check.require(index, DType::i32, out.k, 1, out.rows, 1).state(state, out.k);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, from, out, at = bound[index], states = bound[state]]() noexcept {
        context.pool.for_each_if(out.count() >= kParallelElements, out.k, [&](int member, int) {
            for (int row = 0; row < out.rows; ++row) {
                const std::int32_t v = *at.at<std::int32_t>(member, 0, row);
                float* to = out.at<float>(member, 0, row);
                if (v >= 0 && v < from.rows) {
                    std::copy_n(from.at<float>(member, 0, v), out.cols, to);
                } else {
                    std::fill_n(to, out.cols, 0.0f);
                    state_of(states, member).nonfinite = 1;
                }
            }
        });
    });
}

KernelResult make_embedding_backward(Context& context, const Bound& bound) {
    using namespace embedding_backward;
    const Operand grad = bound[dy], out = bound[dtable];
    Checker check(bound);
    check.require(dtable, DType::f32, out.k, 1, out.rows, out.cols).require(dy, DType::f32, out.k, 1, grad.rows, out.cols);
    check.require(index, DType::i32, out.k, 1, grad.rows, 1);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, grad, out, at = bound[index], accumulate = bound.accumulates(dtable)]() noexcept {
        // Threads share columns, not rows: two rows may name the same entry.
        const bool parallel = grad.count() + out.count() >= kParallelElements;
        const Blocks columns(out.cols, 16, parallel ? 2 * context.pool.threads() : 1);
        context.pool.for_each_if(parallel, out.k * columns.count, [&](int task, int) {
            const int member = task / columns.count, begin = columns.begin(task % columns.count),
                      end = columns.end(task % columns.count);
            if (!accumulate) {
                for (int v = 0; v < out.rows; ++v) std::fill_n(out.at<float>(member, 0, v) + begin, end - begin, 0.0f);
            }
            for (int row = 0; row < grad.rows; ++row) {
                const std::int32_t v = *at.at<std::int32_t>(member, 0, row);
                if (v < 0 || v >= out.rows) continue;
                const float* from = grad.at<float>(member, 0, row);
                float* to = out.at<float>(member, 0, v);
                context.simd.add_rows(end - begin, from + begin, nullptr, to + begin, true);
            }
        });
    });
}

}  // namespace millrace::ops::cpu
