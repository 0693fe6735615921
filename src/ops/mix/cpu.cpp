#include "ops/cpu/kernel.h"
#include "ops/mix/mix.h"

namespace millrace::ops::cpu {

using tensor::DType;
using tensor::Operand;

KernelResult make_mix_groups(Context& context, const Bound& bound) {
    namespace at = mix_groups;
    const Operand in = bound[at::in], out = bound[at::out];
    const auto& params = bound.params<MixParams>();
    return make_kernel([&context, in, out, params, add = bound.accumulates(at::out)]() noexcept {
        for_each_row(context, out, [&](int member, int, int row) {
            const float* from = in.at<float>(member, 0, row);
            float* to = out.at<float>(member, 0, row);
            if (!add) std::fill_n(to, out.cols, 0.0f);
            for (const MixTerm& term : params.terms) {
                const float* source = from + std::int64_t{term.in} * params.cols;
                float* target = to + std::int64_t{term.out} * params.cols;
                for (int c = 0; c < params.cols; ++c) target[c] += term.weight * source[c];
            }
        });
    });
}

}  // namespace millrace::ops::cpu
