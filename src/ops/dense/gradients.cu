// Gradients of a product's operands: of inputs, alone or with the layer below, and of weights, those of many layers in one
// launch. Where dx has more columns than the weight, its product runs over all of them: 16-byte rows are worth more than a few
// columns of zeros.

#include "ops/cuda/vector.cuh"
#include "ops/cuda/weight_copies.h"
#include "ops/dense/forms.h"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {
namespace {

using tensor::DType;
using tensor::Operand;

using Records = std::span<const Bound>;
/// dense_backward of the layer below, where it is a form's second record.
const Bound* below(Records r) { return r.size() > 1 ? &r[1] : nullptr; }

constexpr int kMostOutputs = 4, kNarrowThreads = 256, kNarrowRun = 8;

/// dx (+)= dz w, a thread per run of V columns.
template <class T, class Out, int V>
__global__ void __launch_bounds__(kNarrowThreads)
    narrow_dgrad_kernel(Mat<const T> dz, Mat<const T> w, Mat<Out> dx, int groups, int rows, int runs, int outputs, bool add) {
    begin_kernel();
    const std::int64_t index = std::int64_t{blockIdx.x} * kNarrowThreads + threadIdx.x;
    const int row = static_cast<int>(index / runs), c = static_cast<int>(index % runs) * V;
    const int k = blockIdx.z / groups, g = blockIdx.z % groups;
    if (row >= rows) return;
    Out* to = dx.row(k, g, row) + c;
    float sum[V] = {};
    if (add) load_run<V>(to, sum);
#pragma unroll
    for (int o = 0; o < kMostOutputs; ++o)
        if (o < outputs) {
            const float from = load(dz.row(k, g, row) + o);
            float weights[V];
            load_run<V>(w.row(k, g, o) + c, weights);
#pragma unroll
            for (int i = 0; i < V; ++i) sum[i] += from * weights[i];
        }
    store_run<V>(to, sum);
}

/// Of a layer with very few outputs and very many rows, a matter of bandwidth. In any precision.
bool is_narrow(const Context& c, const Operand& dz) {
    return dz.rows >= c.library_rows && dz.cols > 0 && dz.cols <= kMostOutputs;
}
KernelResult make_narrow_dgrad(Context& c, const Bound& b) {
    using namespace linear_dgrad;
    const Operand &from = b[dz], &to = b[dx];
    const bool whole = to.cols % kNarrowRun == 0 && whole_runs(b[w]) && whole_runs(to);
    const auto make = [&]<class T, class Out>(T, Out) -> KernelResult {
        const auto kernel = whole ? narrow_dgrad_kernel<T, Out, kNarrowRun> : narrow_dgrad_kernel<T, Out, 1>;
        const int runs = whole ? to.cols / kNarrowRun : to.cols;
        const dim3 grid(blocks_for(std::int64_t{to.rows} * runs, kNarrowThreads), 1, to.k * to.g);
        return make_launch(c, kernel, grid, dim3(kNarrowThreads), 0, from, b[w], to, to.g, to.rows, runs, from.cols,
                           b.accumulates(dx));
    };
    return by_real(from.dtype, [&](auto real) { return to.dtype == DType::f32 ? make(real, float{}) : make(real, real); });
}

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
     one<make_narrow_dgrad>},
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

/// Weight gradients one after the other, each with the sums for its bias.
KernelResult make_library_wgrads(Context& c, Records wgrads) {
    using namespace linear_wgrad;
    Kernels all;
    for (const Bound& b : wgrads) {
        Operand in = b[x];
        in.cols = b[dw].cols;
        MILLRACE_SET(all.emplace_back(), make_product(c, Product::wgrad, b[dz], in, b[dw], b.accumulates(dw)));
        if (b[dbias].present()) MILLRACE_SET(all.emplace_back(), make_column_sum(c, b[dz], b[dbias], b.accumulates(dbias)));
    }
    return in_order(std::move(all));
}

/// Whether a weight gradient can be blocks.
bool has_blocks(const Bound& b) {
    using namespace linear_wgrad;
    return tile::has_element(b[x].dtype) && b[dz].dtype == b[x].dtype && b[dw].count() > 0;
}

constexpr Form kWgradForms[] = {
    {"tiles",
     [](const Context& c, Records r) {
         const char* why = nullptr;
         for (const Bound& b : r)
             if (why == nullptr) why = tiled::refuses_wgrad(c, b);
         return why;
     },
     tiled::wgrads_time, tiled::make_wgrads},
    {"blocks",
     [](const Context&, Records r) -> const char* {
         return std::ranges::all_of(r, has_blocks) ? nullptr : "types differ, or there is nothing to do";
     },
     wgrad_blocks_time, make_wgrad_blocks},
    {"library", [](const Context& c, Records) -> const char* { return c.deterministic ? "its sums are not pinned" : nullptr; },
     [](const Context& c, Records r) {
         double time = 0;
         for (const Bound& b : r) {
             // The tensor cores' fast path for TF32 sums along columns alone: two steps took 2.4 and 4.7 times as long.
             const bool slow = c.tf32 && b[linear_wgrad::dz].dtype == DType::f32;
             time += (slow ? 3 : 1) *
                     library_product_time(c, b[linear_wgrad::dw], b[linear_wgrad::dz].rows, b[linear_wgrad::dz].dtype);
         }
         return time;
     },
     make_library_wgrads},
};

/// Whether a weight gradient can share a launch with others, in some form.
bool shares_launch(const Context& c, const Bound& b) { return has_blocks(b) || tiled::refuses_wgrad(c, b) == nullptr; }

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
    MILLRACE_SET(steps.emplace_back(), make_fitted_dgrad(c, fitted));
    return in_order(std::move(steps));
}

bool reads_product(const Bound& d, const Bound& b) {
    const Operand &dx = d[linear_dgrad::dx], &dy = b[dense_backward::dy];
    const auto side_by_side = [](const Operand& o) { return o.g == 1 || o.stride_g == o.cols; };
    return dx.data == dy.data && dx.k == dy.k && dx.rows == dy.rows && dx.g * dx.cols == dy.g * dy.cols &&
           dx.stride_row == dy.stride_row && (dx.k <= 1 || dx.stride_k == dy.stride_k) && side_by_side(dx) && side_by_side(dy);
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
KernelResult make_backward_pair(Context& c, Records records) { return make_form(c, "backward_pair", kPairForms, records); }

KernelResult make_linear_wgrad(Context& c, const Bound& b) {
    using namespace linear_wgrad;
    if (b[dw].count() == 0 && !b[dbias].present()) return make_kernel([] {});
    return shares_launch(c, b) ? make_grouped_wgrad(c, std::span(&b, 1)) : make_library_wgrads(c, std::span(&b, 1));
}

/// The first ones of one type, each of another weight: the sums of a weight that is used twice must not meet in one launch.
Match match_grouped_wgrad(const Context& c, const Window& records) {
    using namespace linear_wgrad;
    const auto weight = [](const Bound& b) { return b[dw].data; };
    const auto takes = [&](const Bound& b) {
        return b.record->op == &kDef && b[x].dtype == records[0][x].dtype && shares_launch(c, b);
    };
    std::size_t count = 0;
    while (count < records.size() && takes(records[count]) &&
           std::ranges::find(records.first(count), weight(records[count]), weight) == records.first(count).end())
        ++count;
    return Match::first(count);
}

/// The bias's sums of a dense_backward without a norm go to the weight gradient that reads the same dz, unless the library does
/// that one: a layer that does nothing else then has no record left. Asked at the product in front of it, too, which may take the
/// record next.
Match match_wgrad_bias(const Context& c, const Window& records) {
    using namespace dense_backward;
    constexpr int kFewRows = 256;  // up to so many the layers' kernels have all rows in a block, and sums cost nothing
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
        if (b.record->op == &linear_wgrad::kDef && same_place(b[linear_wgrad::dz], layer[dz])) break;
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
    if (form == nullptr || form->make == make_library_wgrads) return {};
    Record with = *records[wgrad].record, without = *layer.record;
    with.slots[linear_wgrad::dbias] = without.slots[dbias];
    if (layer.accumulates(dbias)) with.accumulate |= 1u << linear_wgrad::dbias;
    without.slots[dbias] = {};
    without.accumulate &= ~(1u << dbias);
    const bool nothing = p.activation == Activation::none && p.dropout <= 0 && same_place(layer[dy], layer[dz]);
    Match match{{*found, wgrad}};
    match.instead = {nothing ? std::nullopt : std::optional(without), with};
    return match;
}

KernelResult make_grouped_wgrad(Context& c, Records wgrads) {
    // Those that bulk copies cannot read are few and small: they have a launch of their own, unless one launch without such
    // copies does all of them sooner.
    std::vector<Bound> some[2];
    for (const Bound& b : wgrads) some[tiled::refuses_wgrad(c, b) == nullptr ? 0 : 1].push_back(b);
    const auto time = [&](Records part) {
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
