#include <cmath>

#include "models/k1/ops/choose_rule.h"
#include "models/k1/ops/nodes.h"
#include "ops/cpu/kernel.h"
#include "ops/host_kernels.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

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
