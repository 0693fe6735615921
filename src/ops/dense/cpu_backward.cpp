#include "ops/cpu/kernel.h"
#include "ops/cpu/random_mask.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using namespace dense_backward;
using tensor::DType;

void backward_columns(const Context& context, const Bound& b, int member, int group, int col, int cols) noexcept {
    const auto& p = b.params<DenseParams>();
    const tensor::Operand& out = b[dz];
    float sum[kMaxColumns], sum_saved[kMaxColumns];
    ColumnBackward pass{};
    pass.rows = out.rows;
    pass.cols = cols;
    pass.dy = b[dy].at<float>(member, group) + col;
    pass.dy_stride = b[dy].stride_row;
    pass.du = out.at<float>(member, group) + col;
    pass.du_stride = out.stride_row;
    pass.activation = static_cast<std::uint8_t>(p.activation);
    pass.sum = sum;
    if (b[saved].present()) {
        pass.saved = b[saved].at<float>(member, group) + col;
        pass.saved_stride = b[saved].stride_row;
    }
    set_dropout(pass, p, b[state], out, {member, group, 0, col});
    const bool normed = p.norm == Norm::batch_train;
    if (normed) {
        pass.gamma = b[gamma].at<float>(member, group) + col;
        pass.beta = b[beta].at<float>(member, group) + col;
        pass.sum_saved = sum_saved;
    }
    context.simd.column_backward(pass);
    if (!normed) return put_columns(b, dbias, member, group, col, cols, sum);
    put_columns(b, dbeta, member, group, col, cols, sum);
    put_columns(b, dgamma, member, group, col, cols, sum_saved);
    const float* inv = b[inv_std].at<float>(member, group) + col;
    float factor[kMaxColumns];
    for (int i = 0; i < cols; ++i) {
        factor[i] = pass.gamma[i] * inv[i];
        sum[i] /= static_cast<float>(out.rows);
        sum_saved[i] /= static_cast<float>(out.rows);
    }
    context.simd.column_norm_backward(out.rows, cols, pass.saved, pass.saved_stride, factor, sum, sum_saved, pass.du,
                                      pass.du_stride);
}

}  // namespace

KernelResult make_dense_backward(Context& context, const Bound& bound) {
    return make_kernel([&context, b = bound]() noexcept {
        for_each_columns(
            context, b[dz],
            [&](int member, int group, int col, int cols) { backward_columns(context, b, member, group, col, cols); },
            kParallelElements / 2);
    });
}

}  // namespace millrace::ops::cpu
