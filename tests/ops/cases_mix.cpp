#include <fmt/format.h>

#include "models/k1/ops/nodes.h"
#include "op_case.h"

namespace millrace::ops::cases {
namespace {

OpCase mix(const std::string& note, int k, int rows, int cols, int in, int out, std::vector<MixTerm> terms, bool adding,
           Layout layout = kDense) {
    OpCase c;
    c.name = fmt::format("mix_groups/{}/K{}_B{}_C{}_N{}_M{}", note, k, rows, cols, in, out);
    c.op = &mix_groups::kDef;
    c.params = MixParams{cols, std::move(terms)};
    c.members = k;
    c.slot(mix_groups::in, Element::real, k, 1, rows, in * cols, uniform(-1, 1), layout);
    c.slot(mix_groups::out, Element::real, k, 1, rows, out * cols, adding ? uniform(-1, 1) : poison(), layout);
    return adding ? c.accumulates(mix_groups::out) : c;
}

}  // namespace

void add_mix_cases(std::vector<OpCase>& cases) {
    const std::vector<MixTerm> spread{{0, 0, 1}, {1, 0, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}},
        mean{{0, 1, 0.5f}, {0, 2, 0.25f}, {0, 4, 0.25f}};
    for (const int cols : {3, 16, 128}) {
        cases.push_back(mix("spread", 2, 7, cols, 2, 5, spread, false));
        cases.push_back(mix("mean", 2, 7, cols, 5, 1, mean, true));
    }
    cases.push_back(mix("window", 1, 33, 8, 5, 1, mean, false, kWindow));
    cases.push_back(mix("none", 1, 5, 4, 2, 3, {}, false));
    cases.push_back(mix("rows", 1, 0, 4, 5, 1, mean, false));
}

}  // namespace millrace::ops::cases
