#include <algorithm>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;

tensor::Operand first_columns(tensor::Operand operand, int cols) {
    operand.cols = cols;
    return operand;
}

}  // namespace

KernelResult make_grad_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                               bool transposed, bool accumulate) {
    return make_kernel([product = GradProduct(context, a, b, c, transposed, accumulate)]() noexcept { product.run(); });
}

KernelResult make_linear_dgrad(Context& context, const Bound& bound) {
    using namespace linear_dgrad;
    const tensor::Operand& weight = bound[w];
    const tensor::Operand out = first_columns(bound[dx], weight.cols);
    if (bound[dx].cols == weight.cols || bound.accumulates(dx))
        return make_grad_product(context, bound[dz], weight, out, false, bound.accumulates(dx));
    MILLRACE_LET(product, make_grad_product(context, bound[dz], weight, out, false, false));
    return make_kernel([wide = bound[dx], from = weight.cols, product = std::move(product)]() noexcept {
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
    using namespace linear_wgrad;
    const tensor::Operand& out = bound[dw];
    MILLRACE_LET(product,
                 make_grad_product(context, bound[dz], first_columns(bound[x], out.cols), out, true, bound.accumulates(dw)));
    if (!bound[dbias].present()) return KernelResult(std::move(product));
    MILLRACE_LET(sums, make_sums(context, bound, bound[dz], dbias));
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
