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

using Records = std::span<const Bound>;
/// dense_backward of the layer below, where it is a form's second record.
const Bound* below(Records r) { return r.size() > 1 ? &r[1] : nullptr; }

/// Of linear_dgrad; the first two of it with dense_backward, too.
constexpr Form kDgradForms[] = {
    {"tiles",
     [](const Context& c, Records r) { return below(r) ? tiled::refuses_pair(c, r[0], r[1]) : tiled::refuses_dgrad(c, r[0]); },
     [](const Context& c, Records r) { return tiled::dgrad_time(c, r[0], below(r)); },
     [](Context& c, Records r) { return tiled::make_dgrad(c, r[0], below(r)); }},
    {"strips",
     [](const Context& c, Records r) {
         return fuses_backward(c, &r[0], below(r)) ? nullptr : "types differ, or too many rows or outputs for a block";
     },
     [](const Context& c, Records r) { return strips_backward_time(c, &r[0], below(r)); },
     [](Context& c, Records r) { return make_fused_backward(c, &r[0], below(r)); }},
    {"narrow",
     [](const Context& c, Records r) {
         return is_narrow(c, r[0][linear_dgrad::dz]) ? nullptr : "more than four outputs, or few rows";
     },
     [](const Context&, Records r) {
         const Operand& dx = r[0][linear_dgrad::dx];
         return pass_time(static_cast<double>(dx.count()) * static_cast<double>(tensor::size_of(dx.dtype)));
     },
     [](Context& c, Records r) {
         using namespace linear_dgrad;
         return make_narrow_dgrad(c, r[0][dz], r[0][w], r[0][dx], r[0].accumulates(dx));
     }},
    {"library", refuses_nothing,
     [](const Context& c, Records r) {
         return library_product_time(c, r[0][linear_dgrad::dx], r[0][linear_dgrad::dz].cols, r[0][linear_dgrad::dz].dtype);
     },
     [](Context& c, Records r) {
         using namespace linear_dgrad;
         return make_product(c, Product::dgrad, r[0][dz], r[0][w], r[0][dx], r[0].accumulates(dx));
     }},
};
constexpr std::span<const Form> kPairForms(kDgradForms, 2);

/// Predicted microseconds of the two records one after the other.
double apart_time(const Context& c, const Bound& d, const Bound& b) {
    const double elements = static_cast<double>(d[linear_dgrad::dx].count());
    const bool batch = b.params<DenseParams>().norm == Norm::batch_train;
    const double product = library_product_time(c, d[linear_dgrad::dx], d[linear_dgrad::dz].cols, d[linear_dgrad::dz].dtype);
    return product + (batch ? statistics_time(4 * elements) + statistics_time(6 * elements) : statistics_time(6 * elements));
}

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
    return make_product(c, Product::wgrad, b[dz], in, b[dw], b.accumulates(dw));
}

/// linear_dgrad of a layer and dense_backward of the one below it, which reads dx next. dx is stored where the kernels of batch
/// statistics read it again.
Match match_backward_pair(const Context& c, const Window& records) {
    const Operand& dx = records[0][linear_dgrad::dx];
    const auto below = records.next_reader(dx, 0);
    if (!below || records[*below].record->op != &dense_backward::kDef) return {};
    const std::vector<Bound> pair = {records[0], records[*below]};
    const Form* form = choose_form(c, "backward_pair", kPairForms, pair);
    const bool wanted = form != nullptr && (c.deterministic || is_asked_for(c, "backward_pair", *form));
    const bool sooner = form != nullptr && form->predict(c, pair) < apart_time(c, pair[0], pair[1]);
    if (!wanted && !(decide(c, "join_backward_pair", pair, sooner) && form != nullptr)) return {};
    Match match{{0, *below}};
    const bool stored = form == &kPairForms[0] && pair[1].params<DenseParams>().norm == Norm::batch_train;
    if (!stored && !Box(pair[1][dense_backward::dz]).meets(Box(dx))) match.inner = {{0, linear_dgrad::dx}};
    return match;
}
KernelResult make_backward_pair(Context& c, std::span<const Bound> records) {
    return make_form(c, "backward_pair", kPairForms, records);
}

}  // namespace millrace::ops::cuda
