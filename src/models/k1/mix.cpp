#include "models/k1/mix.h"

#include <algorithm>

#include "tape/record.h"

namespace millrace::models {

tape::Value mix_groups(tape::Builder& builder, const tape::Value& x, std::int32_t cols, std::int32_t groups,
                       const std::vector<ops::MixTerm>& terms, const std::string& name) {
    MILLRACE_ASSERT(
        x.view.cols % cols == 0 && terms.size() <= ops::kMostTerms && std::ranges::is_sorted(terms, {}, &ops::MixTerm::out),
        name);
    const tape::Value y = builder.activation(x.view.rows, groups * cols, name, builder.training() && x.needs_gradient);
    builder.append(tape::record_of(&ops::mix_groups::kDef, ops::MixParams{cols, terms}, name, {x, y}));
    if (!y.needs_gradient) return y;

    ops::MixParams back{cols, {}};
    for (const ops::MixTerm& term : terms) back.terms.push_back({term.in, term.out, term.weight});
    std::ranges::stable_sort(back.terms, {}, &ops::MixTerm::out);
    builder.on_backward([&builder, x, y, back, name] {
        const tensor::View dy = builder.gradient(y);
        if (dy.present()) builder.append(tape::record_of(&ops::mix_groups::kDef, back, name, {dy, builder.gradient_target(x)}));
    });
    return y;
}

}  // namespace millrace::models
