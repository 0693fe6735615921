#include "ops/conv/conv.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

/// Of one product: taps that meet the padding at some positions count there, too.
std::int64_t conv_products(const ConvParams& p, const tensor::View& rows) {
    const LiveTaps h(p.height, p.kernel_h), w(p.width, p.kernel_w);
    return std::int64_t{2} * rows.k * rows.rows * p.height * p.width * p.out * p.in * h.count * w.count;
}
std::int64_t conv_forward_flops(const Record& r) { return conv_products(r.params_as<ConvParams>(), r.slots[conv_forward::y]); }
std::int64_t conv_backward_flops(const Record& r) {
    const int products = r.slots[conv_backward::dx].present() ? 2 : 1;
    return products * conv_products(r.params_as<ConvParams>(), r.slots[conv_backward::dy]);
}

}  // namespace

MILLRACE_OPERATOR_WITH(conv_forward, Phase::forward, conv_forward_flops, {"x"}, {"w"}, {"bias"}, {"state"}, {"chosen", write},
                       {"y", write});
MILLRACE_OPERATOR_WITH(conv_backward, Phase::backward, conv_backward_flops, {"dy"}, {"chosen"}, {"x"}, {"w"}, {"state"},
                       {"dx", add}, {"dw", add}, {"dbias", add});

}  // namespace millrace::ops
