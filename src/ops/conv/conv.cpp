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

/// What both directions have.
Checker& check_conv(Checker& c, int y, int chosen, int x, int w, int state, int bias) {
    const auto& p = c.params<ConvParams>();
    const int k = c.shape(y).k, rows = c.shape(y).rows;
    const bool odd = p.kernel_h % 2 == 1 && p.kernel_w % 2 == 1 && p.kernel_h > 0 && p.kernel_w > 0;
    const bool pools = p.pool_h > 0 && p.pool_w > 0 && p.pool_h * p.pool_w < kNothingChosen;
    c.that(p.height > 0 && p.width > 0 && p.in > 0 && p.out > 0, "a map needs positions and channels");
    c.that(odd, "kernels must be odd").that(pools, "windows have 1 to 254 positions");
    const Shape out{k, 1, rows, pools ? p.out_columns() : 0};
    c.require({y}, Type::real, out).allow({chosen}, Type::u8, out).require({x}, Type::real, {k, 1, rows, p.in_columns()});
    c.require({w}, Type::real, {k, 1, p.out, p.weights()}).allow({bias}, Type::stat, {k, 1, 1, p.out});
    return c.dropout(p.dropout, state, k);
}

}  // namespace

MILLRACE_OPERATOR_WITH(conv_forward, Phase::forward, conv_forward_flops, {"x"}, {"w"}, {"bias"}, {"state"}, {"chosen", write},
                       {"y", write});
MILLRACE_OPERATOR_WITH(conv_backward, Phase::backward, conv_backward_flops, {"dy"}, {"chosen"}, {"x"}, {"w"}, {"state"},
                       {"dx", add}, {"dw", add}, {"dbias", add});

void conv_forward::check(Checker& c) { check_conv(c, y, chosen, x, w, state, bias); }
void conv_backward::check(Checker& c) {
    const auto& p = c.params<ConvParams>();
    check_conv(c, dy, chosen, x, w, state, dbias).needs({chosen}, p.chooses()).allow({dx}, real, c.shape(x));
    c.require({dw}, stat, c.shape(w));
}

}  // namespace millrace::ops
