#include "models/k1/ops/mix.h"
#include "ops/cpu/kernel.h"
#include "ops/ref/kernels.h"

namespace millrace::ops {
namespace {

using tensor::Operand;

/// One row, groups in the order of their terms.
template <class T>
void mix_row(const MixParams& params, const T* from, T* to, int width, bool add) noexcept {
    if (!add) std::fill_n(to, width, T{});
    for (const MixTerm& term : params.terms) {
        const T* source = from + std::int64_t{term.in} * params.cols;
        T* target = to + std::int64_t{term.out} * params.cols;
        for (int c = 0; c < params.cols; ++c) target[c] += static_cast<T>(term.weight) * source[c];
    }
}

}  // namespace

namespace ref {

void run_mix_groups(const Bound& bound) {
    namespace at = mix_groups;
    const Operand &in = bound[at::in], &out = bound[at::out];
    for (int m = 0; m < out.k; ++m)
        for (int r = 0; r < out.rows; ++r)
            mix_row(bound.params<MixParams>(), in.at<double>(m, 0, r), out.at<double>(m, 0, r), out.cols,
                    bound.accumulates(at::out));
}

}  // namespace ref

namespace cpu {

KernelResult make_mix_groups(Context& context, const Bound& bound) {
    namespace at = mix_groups;
    const Operand in = bound[at::in], out = bound[at::out];
    return make_kernel([&context, in, out, params = bound.params<MixParams>(), add = bound.accumulates(at::out)]() noexcept {
        for_each_row(context, out, [&](int member, int, int row) {
            mix_row(params, in.at<float>(member, 0, row), out.at<float>(member, 0, row), out.cols, add);
        });
    });
}

}  // namespace cpu
}  // namespace millrace::ops
