#include "ops/cpu/kernel.h"
#include "ops/norm/layernorm.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;
using tensor::Operand;

template <class Body>
void for_each_row(Context& context, const Operand& shape, Body&& body) noexcept {
    const bool parallel = shape.count() >= kParallelElements;
    const Blocks rows(shape.rows, 1, parallel ? 4 * context.pool.threads() : 1);
    context.pool.for_each_if(parallel, shape.k * shape.g * rows.count, [&](int task, int) {
        const int part = task % rows.count, batch = task / rows.count;
        for (int row = rows.begin(part); row < rows.end(part); ++row) body(batch / shape.g, batch % shape.g, row);
    });
}

void put(const Bound& b, int slot, int member, int group, int col, int cols, const float* values) noexcept {
    if (!b[slot].present()) return;
    float* out = b[slot].at<float>(member, group) + col;
    const bool add = b.accumulates(slot);
    for (int i = 0; i < cols; ++i) out[i] = add ? out[i] + values[i] : values[i];
}

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
    put(b, dbeta, member, group, col, cols, sum);
    put(b, dgamma, member, group, col, cols, sum_hat);
}

}  // namespace

KernelResult make_layernorm_forward(Context& context, const Bound& bound) {
    using namespace layernorm_forward;
    const Operand out = bound[y];
    Checker check(bound);
    check.require(y, DType::f32, out.k, out.g, out.rows, out.cols).like(x, y);
    for (const int slot : {gamma, beta}) check.require(slot, DType::f32, out.k, out.g, 1, out.cols);
    for (const int slot : {mean, inv_std}) check.require(slot, DType::f32, out.k, out.g, out.rows, 1);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, out, eps = bound.params<LayerNormParams>().eps]() noexcept {
        for_each_row(context, out, [&](int member, int group, int row) {
            const RowNorm norm =
                context.simd.layernorm_row(out.cols, b[x].at<float>(member, group, row), b[gamma].at<float>(member, group),
                                           b[beta].at<float>(member, group), eps, out.at<float>(member, group, row));
            *b[mean].at<float>(member, group, row) = norm.mean;
            *b[inv_std].at<float>(member, group, row) = norm.inv_std;
        });
    });
}

KernelResult make_layernorm_backward(Context& context, const Bound& bound) {
    using namespace layernorm_backward;
    const Operand in = bound[x];
    Checker check(bound);
    check.require(x, DType::f32, in.k, in.g, in.rows, in.cols)
        .like(dy, x)
        .allow_like(dx, x)
        .require(gamma, DType::f32, in.k, in.g, 1, in.cols);
    for (const int slot : {mean, inv_std}) check.require(slot, DType::f32, in.k, in.g, in.rows, 1);
    for (const int slot : {dgamma, dbeta}) check.allow(slot, DType::f32, in.k, in.g, 1, in.cols);
    MILLRACE_TRY(check.status());
    return make_kernel([&context, b = bound, in]() noexcept {
        const bool parallel = in.count() >= kParallelElements;
        const Blocks columns(in.cols, 16, parallel ? 2 * context.pool.threads() : 1, kMaxColumns);
        context.pool.for_each_if(parallel, in.k * in.g * columns.count, [&](int task, int) {
            const int part = task % columns.count, batch = task / columns.count;
            parameter_gradients(context.simd, b, batch / in.g, batch % in.g, columns.begin(part),
                                columns.end(part) - columns.begin(part));
        });
        // Last, because dx may be the memory of dy.
        if (b[dx].present())
            for_each_row(context, in, [&](int member, int group, int row) {
                const RowNorm norm{*b[mean].at<float>(member, group, row), *b[inv_std].at<float>(member, group, row)};
                context.simd.layernorm_row_backward(in.cols, b[dy].at<float>(member, group, row),
                                                    in.at<float>(member, group, row), b[gamma].at<float>(member, group), norm,
                                                    b[dx].at<float>(member, group, row), b.accumulates(dx));
            });
    });
}

}  // namespace millrace::ops::cpu
