// Which convolutions the kernels along one column do.

#include "models/leak_cnn/ops/lines.cuh"
#include "ops/rewrite.h"

namespace millrace::ops::cuda {
namespace {

Match match_lines(const Context& c, const tensor::Operand& like, const ConvArgs<bf16>& a) {
    const bool fits =
        like.dtype == tensor::DType::bf16 && (takes_first_line(c, a) || (takes_lines(c, a) && has_line_channels(a.p)));
    return Match::first(fits ? 1 : 0);
}

}  // namespace

Match match_line_forward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_forward::y], conv_forward_args<bf16>(records[0]));
}

Match match_line_backward(const Context& c, const Window& records) {
    return match_lines(c, records[0][conv_backward::dy], conv_backward_args<bf16>(records[0]));
}

KernelResult make_line_forward(Context& c, std::span<const Bound> records) {
    const auto a = conv_forward_args<bf16>(records[0]);
    if (takes_first_line(c, a)) return make_first_line_forward(c, a);
    MILLRACE_LET(made, make_line_forward(c, a));
    return made ? KernelResult(std::move(made)) : make_conv_forward(c, records[0]);
}

KernelResult make_line_backward(Context& c, std::span<const Bound> records) {
    const auto a = conv_backward_args<bf16>(records[0]);
    const bool first = takes_first_line(c, a);
    MILLRACE_LET(slabs, make_slabs(c, records[0], first ? first_line_slabs(a.rows) : line_slabs(a.p, a.rows)));
    MILLRACE_LET(sums, first ? make_first_line_backward(c, a, slabs.sums) : make_line_backward(c, a, slabs.sums));
    if (!sums) return make_conv_backward(c, records[0]);
    return finish_conv_backward(c, records[0], slabs, {std::move(sums), nullptr});
}

}  // namespace millrace::ops::cuda
