#include "ops/cpu/gemm.h"
#include "ops/cpu/kernel.h"

namespace millrace::ops::cpu {
namespace {

using tensor::DType;

KernelResult make_product(Context& context, const tensor::Operand& a, const tensor::Operand& b, const tensor::Operand& c,
                          bool transposed, bool accumulate) {
    if (auto library = make_library_product(context, a, transposed, b, false, c, accumulate))
        return make_kernel([product = std::move(library)]() noexcept { product->run(); });
    return make_kernel([product = GradProduct(context, a, b, c, transposed, accumulate)]() noexcept { product.run(); });
}

}  // namespace

KernelResult make_linear_dgrad(Context& context, const Bound& bound) {
    using namespace linear_dgrad;
    const tensor::Operand& weight = bound[w];
    Checker check(bound);
    check.require(w, DType::f32, weight.k, weight.g, weight.rows, weight.cols);
    check.require(dz, DType::f32, weight.k, weight.g, bound[dz].rows, weight.rows);
    check.require(dx, DType::f32, weight.k, weight.g, bound[dz].rows, weight.cols);
    MILLRACE_TRY(check.status());
    return make_product(context, bound[dz], weight, bound[dx], false, bound.accumulates(dx));
}

KernelResult make_linear_wgrad(Context& context, const Bound& bound) {
    using namespace linear_wgrad;
    const tensor::Operand& out = bound[dw];
    Checker check(bound);
    check.require(dw, DType::f32, out.k, out.g, out.rows, out.cols);
    check.require(dz, DType::f32, out.k, out.g, bound[dz].rows, out.rows);
    check.require(x, DType::f32, out.k, out.g, bound[dz].rows, out.cols);
    MILLRACE_TRY(check.status());
    return make_product(context, bound[dz], bound[x], out, true, bound.accumulates(dw));
}

}  // namespace millrace::ops::cpu
