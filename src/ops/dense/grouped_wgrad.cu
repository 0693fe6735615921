// Weight gradients of many layers in one launch.

#include "ops/cuda/context.h"
#include "ops/cuda/forms.h"
#include "ops/dense/dense.h"
#include "ops/dense/fused.h"
#include "ops/dense/tiled.h"
#include "ops/dense/wgrad_blocks.h"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {
using tensor::Operand;

namespace {

/// Whether a weight gradient can be blocks.
bool has_blocks(const Bound& b) {
    using namespace linear_wgrad;
    return tile::has_element(b[x].dtype) && b[dz].dtype == b[x].dtype && b[dw].count() > 0;
}

/// One after the other, each with the sums for its bias.
KernelResult make_library(Context& c, std::span<const Bound> wgrads) {
    using namespace linear_wgrad;
    Kernels all;
    for (const Bound& b : wgrads) {
        Operand in = b[x];
        in.cols = b[dw].cols;
        MILLRACE_LET(product, make_product(c, Product::wgrad, b[dz], in, b[dw], b.accumulates(dw)));
        all.emplace_back(std::move(product));
        if (!b[dbias].present()) continue;
        MILLRACE_LET(sums, make_column_sum(c, b[dz], b[dbias], b.accumulates(dbias)));
        all.emplace_back(std::move(sums));
    }
    return in_order(std::move(all));
}

constexpr Form kWgradForms[] = {
    {"tiles",
     [](const Context& c, std::span<const Bound> r) {
         const char* why = nullptr;
         for (const Bound& b : r)
             if (why == nullptr) why = tiled::refuses_wgrad(c, b);
         return why;
     },
     tiled::wgrads_time, tiled::make_wgrads},
    {"blocks",
     [](const Context&, std::span<const Bound> r) -> const char* {
         return std::ranges::all_of(r, has_blocks) ? nullptr : "types differ, or there is nothing to do";
     },
     wgrad_blocks_time, make_wgrad_blocks},
    {"library",
     [](const Context& c, std::span<const Bound>) -> const char* {
         return c.deterministic ? "its sums are not pinned" : nullptr;
     },
     [](const Context& c, std::span<const Bound> r) {
         double time = 0;
         for (const Bound& b : r) {
             // The tensor cores' fast path for TF32 sums along columns alone: two steps took 2.4 and 4.7 times as long.
             const bool slow = c.tf32 && b[linear_wgrad::dz].dtype == tensor::DType::f32;
             time += (slow ? 3 : 1) *
                     library_product_time(c, b[linear_wgrad::dw], b[linear_wgrad::dz].rows, b[linear_wgrad::dz].dtype);
         }
         return time;
     },
     make_library},
};

}  // namespace

bool shares_launch(const Context& c, const Bound& b) { return has_blocks(b) || tiled::refuses_wgrad(c, b) == nullptr; }

/// Up to so many rows the layers' kernels have all rows in a block, and sums cost nothing.
constexpr int kFewRows = 256;

static bool same_matrix(const Operand& a, const Operand& b) {
    return a.data == b.data && a.dtype == b.dtype && a.k == b.k && a.g == b.g && a.rows == b.rows && a.cols == b.cols &&
           a.stride_row == b.stride_row && (a.g <= 1 || a.stride_g == b.stride_g) && (a.k <= 1 || a.stride_k == b.stride_k);
}

Match match_grouped_wgrad(const Context& c, const Window& records) {
    const tensor::DType type = records[0][linear_wgrad::x].dtype;
    return Match::first(
        count_wgrads(records, [&](const Bound& b) { return b[linear_wgrad::x].dtype == type && shares_launch(c, b); }));
}

/// The bias's sums of a dense_backward without a norm go to the weight gradient that reads the same dz, unless the library does
/// that one: a layer that does nothing else then has no record left. Asked at the product in front of it, too, which may take the
/// record next.
Match match_wgrad_bias(const Context& c, const Window& records) {
    using namespace dense_backward;
    const bool product = records[0].record->op == &linear_dgrad::kDef;
    std::optional<std::size_t> found = 0;
    if (product) found = records.next_reader(records[0][linear_dgrad::dx], 0);
    if (!found || records[*found].record->op != &dense_backward::kDef) return {};
    const Bound& layer = records[*found];
    const auto& p = layer.params<DenseParams>();
    if (!layer[dbias].present() || p.norm != Norm::none || layer[dz].rows <= kFewRows) return {};
    const Box bias(layer[dbias]);
    std::size_t wgrad = *found + 1;
    for (; wgrad < records.size(); ++wgrad) {
        const Bound& b = records[wgrad];
        if (b.record->op == &linear_wgrad::kDef && same_matrix(b[linear_wgrad::dz], layer[dz])) break;
        for (int slot = 0; slot < b.record->slot_count(); ++slot)
            if (b[slot].present() && Box(b[slot]).meets(bias)) return {};
    }
    if (wgrad == records.size() || records[wgrad][linear_wgrad::dbias].present() ||
        records.uses().last_writer(layer[dz], records.number(wgrad)) != records.number(*found))
        return {};
    std::size_t first = wgrad;
    while (first > 0 && records[first - 1].record->op == &linear_wgrad::kDef) --first;
    const std::size_t count = match_grouped_wgrad(c, records.from(first)).count();
    if (first + count <= wgrad) return {};
    const Form* form = choose_form(c, "linear_wgrad", kWgradForms, records.subspan(first, count));
    if (form == nullptr || form->make == make_library) return {};
    Record with = *records[wgrad].record, without = *layer.record;
    with.slots[linear_wgrad::dbias] = without.slots[dbias];
    if (layer.accumulates(dbias)) with.accumulate |= 1u << linear_wgrad::dbias;
    without.slots[dbias] = {};
    without.accumulate &= ~(1u << dbias);
    const bool nothing = p.activation == Activation::none && p.dropout <= 0 && same_matrix(layer[dy], layer[dz]);
    Match match{{*found, wgrad}};
    match.instead = {nothing ? std::nullopt : std::optional(without), with};
    return match;
}

KernelResult make_grouped_wgrad(Context& c, std::span<const Bound> wgrads) {
    // Those that bulk copies cannot read are few and small: they have a launch of their own, unless one launch without such
    // copies does all of them sooner.
    std::vector<Bound> some[2];
    for (const Bound& b : wgrads) some[tiled::refuses_wgrad(c, b) == nullptr ? 0 : 1].push_back(b);
    const auto time = [&](std::span<const Bound> part) {
        const Form* form = part.empty() ? nullptr : choose_form(c, "linear_wgrad", kWgradForms, part);
        return form == nullptr ? 0 : form->predict(c, part);
    };
    if (some[0].empty() || some[1].empty() || c.deterministic ||
        decide(c, "join_linear_wgrad", wgrads, time(wgrads) <= time(some[0]) + time(some[1])))
        return make_form(c, "linear_wgrad", kWgradForms, wgrads);
    MILLRACE_LET(first, make_form(c, "linear_wgrad", kWgradForms, some[0]));
    MILLRACE_LET(second, make_form(c, "linear_wgrad", kWgradForms, some[1]));
    const char* form = first->form;
    const double predicted = first->predicted + second->predicted;
    auto both = in_order({std::move(first), std::move(second)});
    both->form = form;
    both->predicted = predicted;
    return KernelResult(std::move(both));
}

}  // namespace millrace::ops::cuda
