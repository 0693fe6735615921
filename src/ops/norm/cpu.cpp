#include <algorithm>
#include <functional>

#include "ops/cpu/kernel.h"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

/// dgamma and dbeta: sums over rows, per column.
void parameter_gradients(const SimdKernels& simd, const Bound& b, int member, int group, int col, int cols) noexcept {
    using namespace layernorm_backward;
    float sum[kMaxColumns], sum_hat[kMaxColumns];
    LayerNormSums pass{};
    pass.rows = b[x].rows;
    pass.cols = cols;
    pass.dy = b[dy].at<float>(member, group) + col;
    pass.dy_stride = b[dy].stride_row;
    pass.x = b[x].at<float>(member, group) + col;
    pass.x_stride = b[x].stride_row;
    pass.mean = b[mean].at<float>(member, group);
    pass.mean_stride = b[mean].stride_row;
    pass.inv_std = b[inv_std].at<float>(member, group);
    pass.inv_std_stride = b[inv_std].stride_row;
    pass.sum = sum;
    pass.sum_hat = sum_hat;
    simd.layernorm_column_sums(pass);
    put_columns(b, dbeta, member, group, col, cols, sum);
    put_columns(b, dgamma, member, group, col, cols, sum_hat);
}

}  // namespace

KernelResult make_layernorm_forward(Context& context, const Bound& bound) {
    using namespace layernorm_forward;
    const Operand out = bound[y];
    return make_kernel([&context, b = bound, out, eps = bound.params<LayerNormParams>().eps]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            const float* in = b[x].at<float>(member, group, row);
            if (b[residual].present()) {
                float* both = b[sum].at<float>(member, group, row);
                std::transform(in, in + out.cols, b[residual].at<float>(member, group, row), both, std::plus<>());
                in = both;
            }
            const RowNorm norm =
                context.simd.layernorm_row(out.cols, in, b[gamma].at<float>(member, group), b[beta].at<float>(member, group), eps,
                                           out.at<float>(member, group, row));
            *b[mean].at<float>(member, group, row) = norm.mean;
            *b[inv_std].at<float>(member, group, row) = norm.inv_std;
        });
    });
}

KernelResult make_layernorm_backward(Context& context, const Bound& bound) {
    using namespace layernorm_backward;
    const Operand in = bound[x];
    return make_kernel([&context, b = bound, in]() noexcept {
        for_each_columns(context, in, [&](int member, int group, int col, int cols) {
            parameter_gradients(context.simd, b, member, group, col, cols);
        });
        // Last, and dx behind dresidual, because dx may be the memory of dy.
        if (!b[dx].present() && !b[dresidual].present()) return;
        for_each_row(context, in, [&](int member, int group, int row) {
            const RowNorm norm{*b[mean].at<float>(member, group, row), *b[inv_std].at<float>(member, group, row)};
            for (const int slot : {dresidual, dx})
                if (b[slot].present())
                    context.simd.layernorm_row_backward(in.cols, b[dy].at<float>(member, group, row),
                                                        in.at<float>(member, group, row), b[gamma].at<float>(member, group), norm,
                                                        b[slot].at<float>(member, group, row), b.accumulates(slot));
        });
    });
}

}  // namespace millrace::ops::cpu
