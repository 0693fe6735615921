// The dense layer as separate launches: a product, then one kernel for norm, activation and dropout (rows.cu). Any element type,
// any batch.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/dense/batch_norm.cuh"
#include "ops/dense/fused.h"
#include "ops/dense/rows.h"
#include "ops/dense/tiled.h"

namespace millrace::ops::cuda {
namespace {

using tensor::Operand;

/// dense_forward with batch statistics: its product in f32, then those.
KernelResult make_batch_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    Operand z;
    MILLRACE_LET(memory, batch_norm::make_product_memory(c, b[y], z));
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    MILLRACE_LET(norm, batch_norm::make_forward(c, b, z));
    return in_order({std::move(product), std::move(norm)}, memory);
}

/// Whether the library's product is the whole layer.
bool adds_only_bias(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const auto& p = b.params<DenseParams>();
    const bool strict_or_tf32 = b[y].dtype == tensor::DType::f32 && b[x].dtype == b[y].dtype && b[w].dtype == b[y].dtype;
    return strict_or_tf32 && p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !c.deterministic &&
           b[bias].present() && !b[saved].present() && b[y].k * b[y].g == 1 && b[x].cols > 0 &&
           reinterpret_cast<std::uintptr_t>(b[bias].data) % 16 == 0;
}

KernelResult make_plain_forward(Context& c, const Bound& b) {
    using namespace dense_forward;
    const Operand& oy = b[y];
    if (oy.count() == 0) return make_kernel([] {});
    if (b.params<DenseParams>().norm == Norm::batch_train) return make_batch_forward(c, b);
    if (adds_only_bias(c, b))
        if (KernelPtr whole = make_biased_product(c, b[x], b[w], b[bias], oy)) return KernelResult(std::move(whole));
    const Operand& z = b[saved].present() ? b[saved] : oy;
    MILLRACE_LET(product, make_product(c, Product::forward, b[x], b[w], z, false));
    const auto& p = b.params<DenseParams>();
    const bool only_product =
        p.norm == Norm::none && p.activation == Activation::none && p.dropout <= 0 && !b[bias].present() && z.data == oy.data;
    if (only_product) return KernelResult(std::move(product));
    MILLRACE_LET(epilogue, make_rows_epilogue(c, b, z));
    return in_order({std::move(product), std::move(epilogue)});
}

/// A product of the library, then what follows it.
double library_time(const Context& c, const Bound& b) {
    using namespace dense_forward;
    const double elements = static_cast<double>(b[y].count()), size = static_cast<double>(tensor::size_of(b[y].dtype));
    const double product = library_product_time(c, b[y], b[x].cols, b[x].dtype);
    if (adds_only_bias(c, b)) return product;
    const int values = b[saved].present() ? 3 : 2;
    if (b.params<DenseParams>().norm != Norm::batch_train) return product + pass_time(values * size * elements);
    return product + statistics_time(4 * elements) + statistics_time((4 + 2 * size) * elements);
}

constexpr Form kForwardForms[] = {
    {"tiles", one<tiled::refuses_forward>, one<tiled::forward_time>, one<tiled::make_forward>},
    {"strips", one<refuses_strips>, one<strips_forward_time>, one<make_fused_dense_forward>},
    {"library", refuses_nothing, one<library_time>, one<make_plain_forward>},
};

}  // namespace

KernelResult make_dense_forward(Context& c, const Bound& b) {
    return make_form(c, "dense_forward", kForwardForms, std::span(&b, 1));
}

KernelResult make_dense_backward(Context& c, const Bound& b) {
    if (fuses_backward(c, nullptr, &b)) return make_fused_backward(c, nullptr, &b);
    using namespace dense_backward;
    if (b[dz].k * b[dz].g * b[dz].cols == 0) return make_kernel([] {});
    return b.params<DenseParams>().norm == Norm::batch_train ? batch_norm::make_backward(c, b) : make_rows_backward(c, b);
}

}  // namespace millrace::ops::cuda
