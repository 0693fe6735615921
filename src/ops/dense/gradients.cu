// Gradients of a product's operands. Where dx has more columns than the weight, its product runs over all of them: 16-byte rows
// are worth more than a few columns of zeros.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/weight_copies.h"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"
#include "ops/dense/tiled.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

constexpr Form kDgradForms[] = {
    {"tiles", [](const Context& c, std::span<const Bound> r) { return tiled::refuses_dgrad(c, r.front()); },
     [](const Context& c, std::span<const Bound> r) { return tiled::dgrad_time(c, r.front(), nullptr); },
     [](Context& c, std::span<const Bound> r) { return tiled::make_dgrad(c, r.front(), nullptr); }},
    {"strips",
     [](const Context& c, std::span<const Bound> r) {
         return fuses_backward(c, &r.front(), nullptr) ? nullptr : "types differ, or too many rows or outputs for a block";
     },
     [](const Context& c, std::span<const Bound> r) { return strips_backward_time(c, &r.front(), nullptr); },
     [](Context& c, std::span<const Bound> r) { return make_fused_backward(c, &r.front(), nullptr); }},
    {"narrow",
     [](const Context& c, std::span<const Bound> r) {
         return is_narrow(c, r.front()[linear_dgrad::dz]) ? nullptr : "more than four outputs, or few rows";
     },
     [](const Context&, std::span<const Bound> r) {
         const Operand& dx = r.front()[linear_dgrad::dx];
         return pass_time(static_cast<double>(dx.count()) * static_cast<double>(tensor::size_of(dx.dtype)));
     },
     [](Context& c, std::span<const Bound> r) {
         const Bound& b = r.front();
         return make_narrow_dgrad(c, b[linear_dgrad::dz], b[linear_dgrad::w], b[linear_dgrad::dx],
                                  b.accumulates(linear_dgrad::dx));
     }},
    {"library", [](const Context&, std::span<const Bound>) -> const char* { return nullptr; },
     [](const Context& c, std::span<const Bound> r) {
         const Bound& b = r.front();
         return library_product_time(c, b[linear_dgrad::dx], b[linear_dgrad::dz].cols, b[linear_dgrad::dz].dtype);
     },
     [](Context& c, std::span<const Bound> r) {
         const Bound& b = r.front();
         return make_product(c, Product::dgrad, b[linear_dgrad::dz], b[linear_dgrad::w], b[linear_dgrad::dx],
                             b.accumulates(linear_dgrad::dx));
     }},
};

KernelResult make_fitted_dgrad(Context& c, const Bound& b) { return make_form(c, "linear_dgrad", kDgradForms, std::span(&b, 1)); }

}  // namespace

KernelResult make_linear_dgrad(Context& c, const Bound& b) {
    using namespace linear_dgrad;
    if (b[dx].count() == 0) return make_kernel([] {});
    // Over many rows a copy of the weights costs less than a product that cannot read whole runs of them.
    const bool by_library = b[w].dtype != DType::f32 && !c.deterministic && b[dz].rows >= c.library_rows && !is_narrow(c, b[dz]);
    if (b[dx].cols == b[w].cols && (!by_library || whole_runs(b[w]))) return make_fitted_dgrad(c, b);
    Bound fitted = b;
    Kernels steps;
    MILLRACE_TRY(pad_weights(c, b[w], b[dx].cols, fitted.operands[w], steps));
    MILLRACE_LET(product, make_fitted_dgrad(c, fitted));
    steps.push_back(std::move(product));
    return in_order(std::move(steps));
}

KernelResult make_linear_wgrad(Context& c, const Bound& b) {
    using namespace linear_wgrad;
    if (b[dw].count() == 0 && !b[dbias].present()) return make_kernel([] {});
    if (shares_launch(c, b)) return make_grouped_wgrad(c, std::span(&b, 1));
    if (b[dbias].present()) {
        Bound alone = b;
        alone.operands[dbias] = {};
        MILLRACE_LET(product, make_linear_wgrad(c, alone));
        MILLRACE_LET(sums, make_column_sum(c, b[dz], b[dbias], b.accumulates(dbias)));
        return in_order({std::move(product), std::move(sums)});
    }
    Operand in = b[x];
    in.cols = b[dw].cols;
    if (is_narrow(c, b[dz])) return make_narrow_wgrad(c, b[dz], in, b[dw], b.accumulates(dw));
    return make_product(c, Product::wgrad, b[dz], in, b[dw], b.accumulates(dw));
}

}  // namespace millrace::ops::cuda
