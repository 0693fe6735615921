#include "ops/conv/conv.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_DECLARE_KERNELS(conv_forward)
MILLRACE_DECLARE_KERNELS(conv_backward)

namespace {

using enum Access;

/// Of one product: taps that meet the padding at some positions count there, too.
std::int64_t conv_products(const ConvParams& p, const tensor::View& rows) {
    const LiveTaps h(p.height, p.kernel_h), w(p.width, p.kernel_w);
    return std::int64_t{2} * rows.k * rows.rows * p.height * p.width * p.out * p.in * h.count * w.count;
}
std::int64_t forward_flops(const Record& r) { return conv_products(r.params_as<ConvParams>(), r.slots[conv_forward::y]); }
std::int64_t backward_flops(const Record& r) {
    return (r.slots[conv_backward::dx].present() ? 2 : 1) * conv_products(r.params_as<ConvParams>(), r.slots[conv_backward::dy]);
}

constexpr SlotDef kConvForward[] = {{"x"}, {"w"}, {"bias"}, {"state"}, {"chosen", write}, {"y", write}};
static_assert(std::size(kConvForward) == conv_forward::slots);
constexpr SlotDef kConvBackward[] = {{"dy"}, {"chosen"}, {"x"}, {"w"}, {"state"}, {"dx", add}, {"dw", add}, {"dbias", add}};
static_assert(std::size(kConvBackward) == conv_backward::slots);

}  // namespace

const OpDef conv_forward::kDef({.name = "conv_forward",
                                .slots = kConvForward,
                                .phase = Phase::forward,
                                .flops = forward_flops,
                                MILLRACE_KERNELS(conv_forward)});
const OpDef conv_backward::kDef({.name = "conv_backward",
                                 .slots = kConvBackward,
                                 .phase = Phase::backward,
                                 .flops = backward_flops,
                                 MILLRACE_KERNELS(conv_backward)});

}  // namespace millrace::ops
