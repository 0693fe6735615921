#include <cmath>

#include "models/k1/ops/choose_rule.h"
#include "ops/cpu/kernel.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

base::Status check(const ChooseParams& p, const tensor::Operand& grads) {
    if (p.policy.size() != 1 && p.policy.size() != static_cast<std::size_t>(grads.k))
        return base::Error{"choose_nodes: one policy for all members, or one of each"};
    const auto nodes = static_cast<std::int32_t>(p.group.size());
    bool right = nodes >= 1 && nodes <= kMostNodes && p.parent.size() == p.group.size() && p.parent.front() == -1;
    for (std::int32_t n = 1; right && n < nodes; ++n)
        right = p.parent[static_cast<std::size_t>(n)] >= 0 && p.parent[static_cast<std::size_t>(n)] < n;
    for (std::size_t i = 0; right && i < p.pieces.size(); ++i) {
        const NodePiece& piece = p.pieces[i];
        right = piece.begin >= 0 && piece.begin <= piece.end && piece.end <= grads.cols &&
                piece.end - piece.begin <= kMostPiece && piece.node >= (i > 0 ? p.pieces[i - 1].node : 0) && piece.node < nodes;
    }
    if (!right) return base::Error{"choose_nodes: nodes, parents or pieces do not form a tree over the parameters"};
    if (p.labels.count < 1 || p.labels.samples < 1) return base::Error{"choose_nodes: a label and a sample at least"};
    return base::ok();
}

template <class T>
NodeRows<T> rows_of(const tensor::Operand& operand, int member) {
    return {operand.at<T>(member), operand.stride_g};
}

}  // namespace

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
    Checker checker(bound);
    const auto nodes = static_cast<int>(params.group.size());
    checker.require(at::grads, tensor::DType::f32, grads.k, 1, 1, grads.cols)
        .state(at::state, grads.k)
        .groups(at::groups, grads.k)
        .require(at::statistics, tensor::DType::f32, grads.k, nodes, 1, kLabelColumn + 2 * params.labels.count)
        .require(at::carries, tensor::DType::f32, grads.k, nodes, 1, 1 + 2 * params.labels.count);
    MILLRACE_TRY(checker.status());
    MILLRACE_TRY(check(params, grads));
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
}  // namespace millrace::ops
