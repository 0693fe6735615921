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

bool groups_wgrad(const Context& c, const Bound& b) {
    const Operand& x = b[linear_wgrad::x];
    if (!tile::has_element(x.dtype) || b[linear_wgrad::dz].dtype != x.dtype || is_narrow(c, b[linear_wgrad::dz])) return false;
    return c.deterministic || x.rows < c.library_rows;
}

namespace {

/// One after the other.
KernelResult make_library(Context& c, std::span<const Bound> wgrads) {
    std::vector<std::shared_ptr<Kernel>> all;
    for (const Bound& b : wgrads) {
        Operand in = b[linear_wgrad::x];
        in.cols = b[linear_wgrad::dw].cols;
        MILLRACE_LET(
            made, make_product(c, Product::wgrad, b[linear_wgrad::dz], in, b[linear_wgrad::dw], b.accumulates(linear_wgrad::dw)));
        all.emplace_back(std::move(made));
    }
    return make_kernel([all] {
        for (const std::shared_ptr<Kernel>& one : all) one->run();
    });
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
     [](const Context& c, std::span<const Bound> r) -> const char* {
         const bool all = std::ranges::all_of(r, [&](const Bound& b) { return groups_wgrad(c, b); });
         return all ? nullptr : "types differ, or more rows than a block sums over";
     },
     wgrad_blocks_time, make_wgrad_blocks},
    {"library",
     [](const Context& c, std::span<const Bound>) -> const char* {
         return c.deterministic ? "its sums are not pinned" : nullptr;
     },
     [](const Context& c, std::span<const Bound> r) {
         double time = 0;
         for (const Bound& b : r)
             time += library_product_time(c, 2.0 * static_cast<double>(b[linear_wgrad::dw].count()) * b[linear_wgrad::dz].rows,
                                          b[linear_wgrad::dz].dtype);
         return time;
     },
     make_library},
};

}  // namespace

bool shares_launch(const Context& c, const Bound& b) {
    return !is_narrow(c, b[linear_wgrad::dz]) && (groups_wgrad(c, b) || tiled::refuses_wgrad(c, b) == nullptr);
}

Match match_grouped_wgrad(const Context& c, const Window& records) {
    return Match::first(count_wgrads(records, [&](const Bound& b) { return shares_launch(c, b); }));
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
    if (some[0].empty() || some[1].empty() || c.deterministic || time(wgrads) <= time(some[0]) + time(some[1]))
        return make_form(c, "linear_wgrad", kWgradForms, wgrads);
    MILLRACE_LET(first, make_form(c, "linear_wgrad", kWgradForms, some[0]));
    MILLRACE_LET(second, make_form(c, "linear_wgrad", kWgradForms, some[1]));
    const char* form = first->form;
    const double predicted = first->predicted + second->predicted;
    auto both =
        make_kernel([first = std::shared_ptr<Kernel>(std::move(first)), second = std::shared_ptr<Kernel>(std::move(second))] {
            first->run();
            second->run();
        });
    both->form = form;
    both->predicted = predicted;
    return KernelResult(std::move(both));
}

}  // namespace millrace::ops::cuda
