#include <algorithm>

#include "ops/cpu/gemm.h"
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

static tensor::Operand first_columns(tensor::Operand operand, int cols) {
    operand.cols = cols;
    return operand;
}

KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate) {
    return make_kernel([product = GradProduct(context, a, b, c, transposed, accumulate)]() noexcept { product.run(); });
}

KernelResult make_linear_dgrad(Context& context, const Bound& bound) {
    namespace at = linear_dgrad;
    const tensor::Operand& weight = bound[at::w];
    const tensor::Operand out = first_columns(bound[at::dx], weight.cols);
    if (bound[at::dx].cols == weight.cols || bound.accumulates(at::dx))
        return make_grad_product(context, bound[at::dz], weight, out, false, bound.accumulates(at::dx));
    MILLRACE_LET(product, make_grad_product(context, bound[at::dz], weight, out, false, false));
    return make_kernel([wide = bound[at::dx], from = weight.cols, product = std::move(product)]() noexcept {
        product->run();
        for (int k = 0; k < wide.k; ++k)
            for (int g = 0; g < wide.g; ++g)
                for (int row = 0; row < wide.rows; ++row) std::fill_n(wide.at<float>(k, g, row) + from, wide.cols - from, 0.0f);
    });
}

/// Slot `out` gets the sums of `from` over its rows.
static KernelResult make_sums(Context& context, const Bound& bound, const tensor::Operand& from, int out) {
    return make_kernel([&context, b = bound, from, out]() noexcept {
        for_each_columns(context, from, [&](int member, int group, int col, int cols) {
            float sums[kMaxColumns];
            context.simd.column_sums(from.rows, cols, from.at<float>(member, group) + col, from.stride_row, sums);
            put_columns(b, out, member, group, col, cols, sums);
        });
    });
}

KernelResult make_linear_wgrad(Context& context, const Bound& bound) {
    namespace at = linear_wgrad;
    const tensor::Operand& out = bound[at::dw];
    MILLRACE_LET(product, make_grad_product(context, bound[at::dz], first_columns(bound[at::x], out.cols), out, true,
                                            bound.accumulates(at::dw)));
    if (!bound[at::dbias].present()) return KernelResult(std::move(product));
    MILLRACE_LET(sums, make_sums(context, bound, bound[at::dz], at::dbias));
    return make_kernel([product = std::move(product), sums = std::move(sums)]() noexcept {
        product->run();
        sums->run();
    });
}

KernelResult make_column_sum(Context& context, const Bound& bound) {
    using namespace column_sum;
    std::vector<std::unique_ptr<Kernel>> sums;
    for (int slot = out; slot <= third; ++slot) {
        if (!bound[slot].present()) continue;
        tensor::Operand columns = first_columns(bound[in], bound[slot].cols);
        columns.data = bound[in].at<float>(0) + bound.params<ColumnSumParams>().from[slot - out];
        MILLRACE_LET(made, make_sums(context, bound, columns, slot));
        sums.push_back(std::move(made));
    }
    return make_kernel([sums = std::move(sums)]() noexcept {
        for (const auto& sum : sums) sum->run();
    });
}

}  // namespace millrace::ops::cpu
