#include <algorithm>

#include "ops/cpu/kernel.h"
#include "ops/cpu/random_mask.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cpu {

using tensor::Operand;

KernelResult make_add(Context& context, const Bound& bound) {
    const Operand a = bound[add::a], b = bound[add::b], out = bound[add::out];
    return make_kernel([&context, a, b, out, accumulate = bound.accumulates(add::out)]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            const float* left = a.at<float>(member, group, row);
            const float* right = b.present() ? b.at<float>(member, group, row) : nullptr;
            float* to = out.at<float>(member, group, row);
            context.simd.add_rows(out.cols, left, right, to, accumulate);
        });
    });
}

KernelResult make_pointwise_forward(Context& context, const Bound& bound) {
    using namespace pointwise_forward;
    const auto p = bound.params<PointwiseParams>();
    const Operand out = bound[y];
    return make_kernel([&context, p, in = bound[x], out, states = bound[state]]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            for (int col = 0; col < out.cols; col += kMaxColumns) {
                ColumnPass pass{};
                pass.rows = 1;
                pass.cols = std::min(kMaxColumns, out.cols - col);
                pass.x = in.at<float>(member, group, row) + col;
                pass.y = out.at<float>(member, group, row) + col;
                pass.activation = static_cast<std::uint8_t>(p.activation);
                set_dropout(pass, p, states, out, {member, group, row, col});
                context.simd.column_pass(pass);
            }
        });
    });
}

KernelResult make_pointwise_backward(Context& context, const Bound& bound) {
    using namespace pointwise_backward;
    const auto p = bound.params<PointwiseParams>();
    const Operand out = bound[dx];
    return make_kernel([&context, p, grad = bound[dy], in = bound[x], states = bound[state], out,
                        accumulate = bound.accumulates(dx)]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            for (int col = 0; col < out.cols; col += kMaxColumns) {
                float du[kMaxColumns], sum[kMaxColumns];
                ColumnBackward pass{};
                pass.rows = 1;
                pass.cols = std::min(kMaxColumns, out.cols - col);
                pass.dy = grad.at<float>(member, group, row) + col;
                pass.saved = in.at<float>(member, group, row) + col;
                pass.du = du;
                pass.sum = sum;
                pass.activation = static_cast<std::uint8_t>(p.activation);
                set_dropout(pass, p, states, out, {member, group, row, col});
                context.simd.column_backward(pass);
                float* to = out.at<float>(member, group, row) + col;
                for (int i = 0; i < pass.cols; ++i) to[i] = accumulate ? to[i] + du[i] : du[i];
            }
        });
    });
}

}  // namespace millrace::ops::cpu
