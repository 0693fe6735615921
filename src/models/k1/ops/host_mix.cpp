#include "models/k1/ops/mix.h"
#include "ops/host_kernels.h"

namespace millrace::ops {
namespace {

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

MILLRACE_HOST_ROWS(mix_groups, out, bound[mix_groups::out].cols, mix_row);

}  // namespace millrace::ops
