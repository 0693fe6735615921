#include <algorithm>

#include "ops/cpu/kernel.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using namespace dense_backward;
using tensor::DType;

/// Columns [col, col + cols) of one matrix, and of them over some rows the sums of du and of du * xhat.
struct Columns {
    int member, group, col, cols;
    float sum[kMaxColumns], dot[kMaxColumns];
};

/// The pass from dy to du over rows [row, row + rows), for dense_backward and the records of batch statistics.
void pass_rows(const Context& context, const Bound& b, Columns& at, int row, int rows, float* du, std::int64_t stride) noexcept {
    const auto& p = b.params<DenseParams>();
    ColumnBackward pass{};
    pass.rows = rows;
    pass.cols = at.cols;
    pass.dy = b[dy].at<float>(at.member, at.group, row) + at.col;
    pass.dy_stride = b[dy].stride_row;
    pass.du = du;
    pass.du_stride = stride;
    pass.activation = static_cast<std::uint8_t>(p.activation);
    pass.sum = at.sum;
    if (b[saved].present()) {
        pass.saved = b[saved].at<float>(at.member, at.group, row) + at.col;
        pass.saved_stride = b[saved].stride_row;
    }
    set_dropout(pass, p, b[state], b[dy], {at.member, at.group, row, at.col});
    if (p.norm == Norm::batch_train) {
        pass.gamma = b[gamma].at<float>(at.member, at.group) + at.col;
        pass.beta = b[beta].at<float>(at.member, at.group) + at.col;
        pass.sum_saved = at.dot;
    }
    context.simd.column_backward(pass);
}

void join_sums(const tensor::Operand& chunks, Columns& at) noexcept {
    std::fill_n(at.sum, at.cols, 0.0f);
    std::fill_n(at.dot, at.cols, 0.0f);
    for (int chunk = 0; chunk < chunks.rows; ++chunk) {
        const float* from = chunks.at<float>(at.member, at.group, chunk) + at.col;
        for (int i = 0; i < at.cols; ++i) {
            at.sum[i] += from[i];
            at.dot[i] += from[chunks.cols / 2 + i];
        }
    }
}

/// dense_backward, or batch_apply_backward where the sums of chunks are given.
void backward_columns(const Context& context, const Bound& b, Columns& at, const tensor::Operand& chunks) noexcept {
    const tensor::Operand& out = b[dz];
    float* du = out.at<float>(at.member, at.group) + at.col;
    pass_rows(context, b, at, 0, out.rows, du, out.stride_row);
    if (b.params<DenseParams>().norm != Norm::batch_train)
        return put_columns(b, dbias, at.member, at.group, at.col, at.cols, at.sum);
    if (chunks.present()) join_sums(chunks, at);
    put_columns(b, dbeta, at.member, at.group, at.col, at.cols, at.sum);
    put_columns(b, dgamma, at.member, at.group, at.col, at.cols, at.dot);
    const float* scale = b[gamma].at<float>(at.member, at.group) + at.col;
    const float* inv = b[inv_std].at<float>(at.member, at.group) + at.col;
    float factor[kMaxColumns];
    for (int i = 0; i < at.cols; ++i) {
        factor[i] = scale[i] * inv[i];
        at.sum[i] /= static_cast<float>(out.rows);
        at.dot[i] /= static_cast<float>(out.rows);
    }
    context.simd.column_norm_backward(out.rows, at.cols, b[saved].at<float>(at.member, at.group) + at.col, b[saved].stride_row,
                                      factor, at.sum, at.dot, du, out.stride_row);
}

void chunk_sums(const Context& context, const Bound& b, Columns& at, const tensor::Operand& chunks) noexcept {
    float du[kMomentRows * kMaxColumns];
    for (int chunk = 0; chunk < chunks.rows; ++chunk) {
        const int row = chunk * kMomentRows;
        pass_rows(context, b, at, row, std::min(kMomentRows, b[dy].rows - row), du, kMaxColumns);
        float* to = chunks.at<float>(at.member, at.group, chunk) + at.col;
        std::copy_n(at.sum, at.cols, to);
        std::copy_n(at.dot, at.cols, to + chunks.cols / 2);
    }
}

/// Runs one of the above for all columns.
template <class Run>
KernelResult make_columns(Context& context, const Bound& bound, Run run, const tensor::Operand& chunks) {
    return make_kernel([&context, b = bound, run, chunks]() noexcept {
        const auto body = [&](int member, int group, int col, int cols) {
            Columns at{member, group, col, cols, {}, {}};
            run(context, b, at, chunks);
        };
        for_each_columns(context, b[dy], body, kParallelElements / 2);
    });
}

}  // namespace

KernelResult make_dense_backward(Context& context, const Bound& bound) {
    return make_columns(context, bound, backward_columns, {});
}
KernelResult make_batch_moments_backward(Context& context, const Bound& bound) {
    return make_columns(context, bound, chunk_sums, bound[batch_moments_backward::sums]);
}
KernelResult make_batch_apply_backward(Context& context, const Bound& bound) {
    return make_columns(context, bound, backward_columns, bound[batch_apply_backward::sums]);
}

}  // namespace millrace::ops::cpu
