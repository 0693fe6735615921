#include "ops/mix/mix.h"
#include "ops/ref/kernels.h"

namespace millrace::ops::ref {

void run_mix_groups(const Bound& bound) {
    namespace at = mix_groups;
    const auto& params = bound.params<MixParams>();
    const auto &in = bound[at::in], &out = bound[at::out];
    for (int m = 0; m < out.k; ++m)
        for (int r = 0; r < out.rows; ++r)
            for (int c = 0; c < out.cols; ++c) {
                double sum = 0;
                for (const MixTerm& term : params.terms)
                    if (term.out == c / params.cols)
                        sum += static_cast<double>(term.weight) * in.at<double>(m, 0, r)[term.in * params.cols + c % params.cols];
                store(out.at<double>(m, 0, r)[c], sum, bound.accumulates(at::out));
            }
}

}  // namespace millrace::ops::ref
