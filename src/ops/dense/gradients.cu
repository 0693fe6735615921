// Gradients of a product's operands. Where the side of x has more columns than the weight, both products run over all of them:
// 16-byte rows are worth more than a few columns of zeros.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/cuda/vector.cuh"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"
#include "ops/dense/tiled.h"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

KernelPtr one_after_the_other(KernelPtr first, KernelPtr second) {
    return make_kernel([first = std::shared_ptr<Kernel>(std::move(first)), second = std::shared_ptr<Kernel>(std::move(second))] {
        first->run();
        second->run();
    });
}

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
         return library_product_time(c, 2.0 * static_cast<double>(b[linear_dgrad::dx].count()) * b[linear_dgrad::dz].cols,
                                     b[linear_dgrad::dz].dtype);
     },
     [](Context& c, std::span<const Bound> r) {
         const Bound& b = r.front();
         return make_product(c, Product::dgrad, b[linear_dgrad::dz], b[linear_dgrad::w], b[linear_dgrad::dx],
                             b.accumulates(linear_dgrad::dx));
     }},
};

KernelResult make_fitted_dgrad(Context& c, const Bound& b) { return make_form(c, "linear_dgrad", kDgradForms, std::span(&b, 1)); }

/// Columns 0 .. cols - 1 of a scratch matrix [K * G, rows, stride] to where they belong.
__global__ void first_columns_kernel(const float* in, std::int64_t stride, Mat<float> out, int groups, int rows, int cols,
                                     bool accumulate) {
    begin_kernel();
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x))
        for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(blockDim.x))
            put(out.row(k, g, r) + c, in[(std::int64_t{blockIdx.z} * rows + r) * stride + c], accumulate);
}

/// dw through a scratch matrix with as many columns as x.
KernelResult make_wide_wgrad(Context& c, const Operand& dz, const Operand& x, const Operand& dw, bool accumulate) {
    Operand sums = dw;
    sums.cols = x.cols;
    sums.stride_row = x.cols;
    sums.stride_g = sums.stride_row * dw.rows;
    sums.stride_k = sums.stride_g * dw.g;
    MILLRACE_LET(memory, zero_table(c, static_cast<std::size_t>(sums.stride_k * dw.k) * sizeof(float)));
    sums.data = memory.get();
    MILLRACE_LET(product, make_product(c, Product::wgrad, dz, x, sums, false));
    const dim3 grid(std::min(dw.rows, 4096), 1, dw.k * dw.g);
    auto fit =
        make_launch(c, first_columns_kernel, grid, dim3(128), 0, memory, sums.stride_row, dw, dw.g, dw.rows, dw.cols, accumulate);
    return one_after_the_other(std::move(product), std::move(fit));
}

}  // namespace

KernelResult make_linear_dgrad(Context& c, const Bound& b) {
    using namespace linear_dgrad;
    if (b[dx].count() == 0) return make_kernel([] {});
    // Over many rows a copy of the weights costs less than a product that cannot read whole runs of them.
    const bool by_library = b[w].dtype != DType::f32 && !c.deterministic && b[dz].rows >= c.library_rows && !is_narrow(c, b[dz]);
    if (b[dx].cols == b[w].cols && (!by_library || whole_runs(b[w]))) return make_fitted_dgrad(c, b);
    Bound fitted = b;
    MILLRACE_LET(copy, share_padded_copy(c, b[w], b[dx].cols, fitted.operands[w]));
    MILLRACE_LET(product, make_fitted_dgrad(c, fitted));
    return one_after_the_other(std::move(copy), std::move(product));
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
        return one_after_the_other(std::move(product), std::move(sums));
    }
    Operand in = b[x];
    const bool wide = in.dtype != DType::f32 && in.cols > b[dw].cols && in.cols % 8 == 0 && whole_runs(in);
    if (wide && !is_narrow(c, b[dz])) return make_wide_wgrad(c, b[dz], in, b[dw], b.accumulates(dw));
    in.cols = b[dw].cols;
    if (is_narrow(c, b[dz])) return make_narrow_wgrad(c, b[dz], in, b[dw], b.accumulates(dw));
    return make_product(c, Product::wgrad, b[dz], in, b[dw], b.accumulates(dw));
}

}  // namespace millrace::ops::cuda
