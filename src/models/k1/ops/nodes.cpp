#include "models/k1/ops/nodes.h"

#include <cmath>

#include "models/k1/ops/choose_rule.h"
#include "ops/cpu/kernel.h"
#include "ops/host_kernels.h"
#include "ops/kernels.h"
#include "ops/ref/kernels.h"

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

template <class T>
NodeRows<T> rows_of(const tensor::Operand& operand, int member) {
    return {operand.at<T>(member), operand.stride_g};
}

/// Groups in the order of their terms.
template <class T>
void mix_row(const Bound& b, int member, int row) {
    using namespace mix_groups;
    const auto& params = b.params<MixParams>();
    const T* from = b[in].at<T>(member, 0, row);
    T* to = b[out].at<T>(member, 0, row);
    if (!b.accumulates(out)) std::fill_n(to, b[out].cols, T{});
    for (const MixTerm& term : params.terms) {
        const T* source = from + std::int64_t{term.in} * params.cols;
        T* target = to + std::int64_t{term.out} * params.cols;
        for (int c = 0; c < params.cols; ++c) target[c] += static_cast<T>(term.weight) * source[c];
    }
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

namespace ref {

void run_choose_nodes(const Bound& bound) {
    namespace at = choose_nodes;
    const auto& params = bound.params<ChooseParams>();
    const auto& grads = bound[at::grads];
    for (int m = 0; m < grads.k; ++m) {
        std::vector<double> squares(params.group.size());
        for (const NodePiece& piece : params.pieces)
            for (int i = piece.begin; i < piece.end; ++i)
                squares[static_cast<std::size_t>(piece.node)] += grads.at<double>(m)[i] * grads.at<double>(m)[i];
        std::vector<float> norms(squares.size()), gains(squares.size());
        const MemberState& state = state_of(bound[at::state], m);
        for (std::size_t n = 0; n < squares.size(); ++n) norms[n] = static_cast<float>(std::sqrt(squares[n]) / state.loss_scale);
        choose_on_host(params, m, state, groups_of(bound[at::groups], m).data(), norms.data(), gains.data(),
                       rows_of<double>(bound[at::statistics], m), rows_of<double>(bound[at::carries], m));
    }
}

}  // namespace ref

namespace cpu {

KernelResult make_choose_nodes(Context& context, const Bound& bound) {
    namespace at = choose_nodes;
    const tensor::Operand grads = bound[at::grads];
    const auto& params = bound.params<ChooseParams>();
    return make_kernel([&context, b = bound, grads, params, squares = std::vector<double>(params.pieces.size()),
                        norms = std::vector<float>(params.group.size()),
                        gains = std::vector<float>(params.group.size())]() mutable noexcept {
        for (int m = 0; m < grads.k; ++m) {
            const float* g = grads.at<float>(m);
            context.pool.for_each_if(grads.cols >= kParallelElements, static_cast<int>(params.pieces.size()), [&](int i, int) {
                const NodePiece& piece = params.pieces[static_cast<std::size_t>(i)];
                squares[static_cast<std::size_t>(i)] = context.simd.sum_of_squares(piece.end - piece.begin, g + piece.begin);
            });
            const MemberState& state = state_of(b[at::state], m);
            std::size_t i = 0;
            for (std::size_t n = 0; n < norms.size(); ++n) {
                double sum = 0;
                for (; i < squares.size() && params.pieces[i].node == static_cast<std::int32_t>(n); ++i) sum += squares[i];
                norms[n] = static_cast<float>(std::sqrt(sum) / static_cast<double>(state.loss_scale));
            }
            choose_on_host(params, m, state, groups_of(b[at::groups], m).data(), norms.data(), gains.data(),
                           rows_of<float>(b[at::statistics], m), rows_of<float>(b[at::carries], m));
        }
    });
}

}  // namespace cpu

MILLRACE_HOST_ROWS(mix_groups, out, bound[mix_groups::out].cols, mix_row);

}  // namespace millrace::ops
