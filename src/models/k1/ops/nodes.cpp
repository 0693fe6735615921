#include "models/k1/ops/nodes.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

bool is_tree(const ChooseParams& p, int parameters) {
    const auto nodes = static_cast<std::int32_t>(p.group.size());
    bool right = nodes >= 1 && nodes <= kMostNodes && p.parent.size() == p.group.size() && p.parent.front() == -1;
    for (std::int32_t n = 1; right && n < nodes; ++n)
        right = p.parent[static_cast<std::size_t>(n)] >= 0 && p.parent[static_cast<std::size_t>(n)] < n;
    for (std::size_t i = 0; right && i < p.pieces.size(); ++i) {
        const NodePiece& piece = p.pieces[i];
        right = piece.begin >= 0 && piece.begin <= piece.end && piece.end <= parameters &&
                piece.end - piece.begin <= kMostPiece && piece.node >= (i > 0 ? p.pieces[i - 1].node : 0) && piece.node < nodes;
    }
    return right;
}

}  // namespace

MILLRACE_OPERATOR(choose_nodes, Phase::optimizer, {"grads"}, {"state"}, {"groups", update}, {"statistics", update},
                  {"carries", update});

void choose_nodes::check(Checker& c) {
    const auto& p = c.params<ChooseParams>();
    const auto [k, g, rows, cols] = c.shape(grads);
    const auto nodes = static_cast<int>(p.group.size());
    c.require({grads}, stat, {k, 1, 1, cols}).state(state, k).groups(groups, k);
    c.require({statistics}, stat, {k, nodes, 1, kLabelColumn + 2 * p.labels.count});
    c.require({carries}, stat, {k, nodes, 1, 1 + 2 * p.labels.count});
    c.that(p.policy.size() == 1 || p.policy.size() == static_cast<std::size_t>(k), "one policy for all members, or one of each");
    c.that(is_tree(p, cols), "nodes, parents or pieces do not form a tree over the parameters");
    c.that(p.labels.count >= 1 && p.labels.samples >= 1, "a label and a sample at least");
}

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
