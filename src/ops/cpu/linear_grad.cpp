#include <algorithm>

#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"

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
    Checker check(bound);
    check.require(w, DType::f32, weight.k, weight.g, weight.rows, weight.cols);
    check.require(dz, DType::f32, weight.k, weight.g, bound[dz].rows, weight.rows);
    check.require(dx, DType::f32, weight.k, weight.g, bound[dz].rows, bound[dx].cols);
    check.that(bound[dx].cols >= weight.cols, "dx has fewer columns than w");
    MILLRACE_TRY(check.status());
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

KernelResult make_linear_wgrad(Context& context, const Bound& bound) {
    using namespace linear_wgrad;
    const tensor::Operand& out = bound[dw];
    Checker check(bound);
    check.require(dw, DType::f32, out.k, out.g, out.rows, out.cols);
    check.require(dz, DType::f32, out.k, out.g, bound[dz].rows, out.rows);
    check.require(x, DType::f32, out.k, out.g, bound[dz].rows, bound[x].cols);
    check.that(bound[x].cols >= out.cols, "x has fewer columns than dw");
    MILLRACE_TRY(check.status());
    return make_grad_product(context, bound[dz], first_columns(bound[x], out.cols), out, true, bound.accumulates(dw));
}

}  // namespace millrace::ops::cpu
