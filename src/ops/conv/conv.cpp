#include "ops/conv/conv.h"

#include <cmath>

#include "ops/kernels.h"
#include "ops/ref/kernels.h"

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

namespace ref {
namespace {

/// Calls body(column of x, column of the weight) for all products of position (h, w).
template <class Body>
void for_each_tap(const ConvParams& p, int h, int w, Body&& body) {
    for (int i = 0; i < p.kernel_h; ++i)
        for (int j = 0; j < p.kernel_w; ++j) {
            const int row = h + i - p.kernel_h / 2, col = w + j - p.kernel_w / 2;
            if (row < 0 || row >= p.height || col < 0 || col >= p.width) continue;
            for (int c = 0; c < p.in; ++c)
                body((std::int64_t{row} * p.width + col) * p.in + c, (std::int64_t{c} * p.kernel_h + i) * p.kernel_w + j);
        }
}

/// Calls body(pooled position) for all of them.
template <class Body>
void for_each_output(const tensor::Operand& y, const ConvParams& p, Body&& body) {
    for (int member = 0; member < y.k; ++member)
        for (int row = 0; row < y.rows; ++row)
            for (int at = 0; at < p.pooled_h() * p.pooled_w(); ++at)
                for (int o = 0; o < p.out; ++o) body(member, row, at, o);
}

}  // namespace

void run_conv_forward(const Bound& bound) {
    using namespace conv_forward;
    const auto& p = bound.params<ConvParams>();
    const Dropout dropout(p.dropout, p.op_number, bound[state]);
    for_each_output(bound[y], p, [&](int member, int row, int at, int o) {
        const double *in = bound[x].at<double>(member, 0, row), *weight = bound[w].at<double>(member, 0, o);
        double largest = 0;
        int found = 0;
        for (int place = 0; place < p.pool_h * p.pool_w; ++place) {
            const int h = at / p.pooled_w() * p.pool_h + place / p.pool_w, v = at % p.pooled_w() * p.pool_w + place % p.pool_w;
            double sum = bound[bias].present() ? bound[bias].at<double>(member)[o] : 0;
            for_each_tap(p, h, v, [&](std::int64_t from, std::int64_t tap) { sum += in[from] * weight[tap]; });
            if (place > 0 && !(sum > largest || std::isnan(sum))) continue;
            largest = sum;
            found = place;
        }
        const std::int64_t column = p.column(at, o);
        const double factor = dropout.factor(member, element_of(bound[y], 0, row, column));
        if (bound[chosen].present())
            bound[chosen].at<std::uint8_t>(member, 0, row)[column] =
                static_cast<std::uint8_t>(factor == 0 || (p.relu && largest <= 0) ? kNothingChosen : found);
        bound[y].at<double>(member, 0, row)[column] = activate(p.relu ? Activation::relu : Activation::none, largest) * factor;
    });
}

void run_conv_backward(const Bound& bound) {
    using namespace conv_backward;
    const auto& p = bound.params<ConvParams>();
    const Dropout dropout(p.dropout, p.op_number, bound[state]);
    const auto clear = [&](int slot) {
        const tensor::Operand& out = bound[slot];
        if (!out.present() || bound.accumulates(slot)) return;
        for (int member = 0; member < out.k; ++member)
            for (int row = 0; row < out.rows; ++row) std::fill_n(out.at<double>(member, 0, row), out.cols, 0.0);
    };
    for (const int slot : {dx, dw, dbias}) clear(slot);
    for_each_output(bound[dy], p, [&](int member, int row, int at, int o) {
        const std::int64_t column = p.column(at, o);
        const int place = p.chooses() ? bound[chosen].at<std::uint8_t>(member, 0, row)[column] : 0;
        if (place >= p.pool_h * p.pool_w) return;
        const double dz = bound[dy].at<double>(member, 0, row)[column] * dropout.scale(member);
        const int h = at / p.pooled_w() * p.pool_h + place / p.pool_w, v = at % p.pooled_w() * p.pool_w + place % p.pool_w;
        const double *in = bound[x].at<double>(member, 0, row), *weight = bound[w].at<double>(member, 0, o);
        double* dweight = bound[dw].at<double>(member, 0, o);
        double* din = bound[dx].present() ? bound[dx].at<double>(member, 0, row) : nullptr;
        for_each_tap(p, h, v, [&](std::int64_t from, std::int64_t tap) {
            dweight[tap] += dz * in[from];
            if (din != nullptr) din[from] += dz * weight[tap];
        });
        if (bound[dbias].present()) bound[dbias].at<double>(member)[o] += dz;
    });
}

}  // namespace ref
}  // namespace millrace::ops
