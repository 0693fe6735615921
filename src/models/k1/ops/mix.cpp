#include "models/k1/ops/mix.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(mix_groups, {}, {"in"}, {"out", add});

void mix_groups::check(Checker& c) {
    const auto& p = c.params<MixParams>();
    const Shape from = c.shape(in), to = c.shape(out);
    c.require({in}, real, {to.k, 1, to.rows, from.cols}).require({out}, real, {to.k, 1, to.rows, to.cols});
    c.that(p.cols > 0 && from.cols % p.cols == 0 && to.cols % p.cols == 0, "the columns of a group must divide both widths");
    bool right = p.terms.size() <= kMostTerms;
    for (std::size_t i = 0; right && i < p.terms.size(); ++i) {
        const MixTerm& term = p.terms[i];
        right = term.out >= (i > 0 ? p.terms[i - 1].out : 0) && term.in >= 0 && std::int64_t{term.out + 1} * p.cols <= to.cols &&
                std::int64_t{term.in + 1} * p.cols <= from.cols;
    }
    c.that(right, "terms must be in ascending order of the groups that they reach, at most 4096, inside both widths");
}

}  // namespace millrace::ops
