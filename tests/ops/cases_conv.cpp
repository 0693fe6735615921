// Convolutions of maps: kernels that reach beyond small maps, windows that do not divide them, both orders of y.

#include <fmt/format.h>

#include <limits>

#include "op_case.h"
#include "ops/conv/conv.h"

namespace millrace::ops::cases {
namespace {

struct Maps {
    int k, rows;
    ConvParams p;
    [[nodiscard]] std::string text() const {
        return fmt::format("K{}_B{}_{}x{}x{}_to{}_k{}x{}_p{}x{}{}{}{}", k, rows, p.height, p.width, p.in, p.out, p.kernel_h,
                           p.kernel_w, p.pool_h, p.pool_w, p.relu ? "_relu" : "", p.channels_first ? "_cf" : "",
                           p.dropout > 0 ? "_drop" : "");
    }
};

OpCase forward(const Maps& m, const std::string& note, Values x, Layout layout = kDense) {
    namespace at = conv_forward;
    OpCase c;
    c.name = fmt::format("conv_forward/{}/{}", note, m.text());
    c.op = &conv_forward::kDef;
    c.params = m.p;
    c.members = m.k;
    c.slot(at::x, Element::real, m.k, 1, m.rows, m.p.in_columns(), std::move(x), layout);
    c.slot(at::w, Element::real, m.k, 1, m.p.out, m.p.weights(), uniform(-1, 1), layout);
    c.slot(at::bias, Element::stat, m.k, 1, 1, m.p.out, uniform(-1, 1));
    if (m.p.dropout > 0) {
        c.states = sample_states(m.k);
        c.state(at::state);
    }
    if (m.p.chooses()) c.slot(at::chosen, Element::u8, m.k, 1, m.rows, m.p.out_columns(), poison(), layout);
    c.slot(at::y, Element::real, m.k, 1, m.rows, m.p.out_columns(), poison(), layout);
    c.slots[at::y].exact_zeros = m.p.dropout > 0;
    return c;
}

OpCase backward(const Maps& m, const std::string& note, bool add = false, bool with_dx = true, Layout layout = kDense) {
    namespace at = conv_backward;
    OpCase c;
    c.name = fmt::format("conv_backward/{}/{}", note, m.text());
    c.op = &conv_backward::kDef;
    c.params = m.p;
    c.members = m.k;
    c.slot(at::dy, Element::real, m.k, 1, m.rows, m.p.out_columns(), uniform(-1, 1), layout);
    // Any position of the window, or none.
    std::vector<double> places;
    for (int i = 0; i < m.p.pool_h * m.p.pool_w; ++i) places.push_back(i);
    if (m.p.relu || m.p.dropout > 0) places.push_back(kNothingChosen);
    if (places.size() % 2 == 0) places.push_back(0);
    if (m.p.chooses()) c.slot(at::chosen, Element::u8, m.k, 1, m.rows, m.p.out_columns(), given(places), layout);
    c.slot(at::x, Element::real, m.k, 1, m.rows, m.p.in_columns(), uniform(-1, 1), layout);
    c.slot(at::w, Element::real, m.k, 1, m.p.out, m.p.weights(), uniform(-1, 1), layout);
    if (m.p.dropout > 0) {
        c.states = sample_states(m.k);
        c.state(at::state);
    }
    const Values before = add ? uniform(-1, 1) : poison();
    if (with_dx) c.slot(at::dx, Element::real, m.k, 1, m.rows, m.p.in_columns(), before, layout);
    c.slot(at::dw, Element::stat, m.k, 1, m.p.out, m.p.weights(), before, layout);
    c.slot(at::dbias, Element::stat, m.k, 1, 1, m.p.out, before);
    if (add) {
        if (with_dx) c.accumulates(at::dx);
        c.accumulates(at::dw).accumulates(at::dbias);
    }
    return c;
}

}  // namespace

void add_conv_cases(std::vector<OpCase>& cases) {
    const ConvParams one{1, 1, 1, 1, 1, 1, 1, 1, false};
    const ConvParams frames{64, 1, 3, 7, 3, 3, 2, 1, true};  // one frame: three taps of nine meet data
    const ConvParams narrow{64, 1, 32, 64, 3, 3, 2, 1, true, true, 0.25f, 5};
    const ConvParams image{9, 11, 2, 5, 3, 5, 2, 3, true};  // windows leave a row and two columns over
    const ConvParams wide{5, 8, 4, 33, 5, 3, 1, 1, false, true};
    const ConvParams small{2, 3, 3, 4, 7, 7, 1, 1, true};  // the kernel is larger than the map
    // The layers of a network over one frame, on several tiles with a part of one at the end.
    const ConvParams first{64, 1, 1, 32, 3, 3, 1, 1, true}, middle{64, 1, 32, 64, 3, 3, 2, 1, true},
        last{32, 1, 64, 128, 3, 3, 2, 1, true, true, 0.25f, 5}, same{40, 1, 64, 64, 3, 1, 1, 1, true};
    // Colour images: whole runs of channels in 16 bytes, and a window that sticks out at two sides.
    const ConvParams colour{12, 10, 3, 32, 3, 3, 2, 2, true}, second{6, 5, 32, 24, 3, 3, 2, 2, true},
        answers{5, 7, 16, 64, 5, 3, 2, 3, true, true, 0.25f, 5}, grouped{6, 6, 8, 8, 1, 1, 1, 1, false};
    const Maps all[] = {{2, 9, colour}, {2, 9, second},  {2, 9, answers}, {1, 3, grouped},
                        {1, 1, one},    {2, 5, frames},  {1, 3, narrow},  {2, 3, image},
                        {1, 7, wide},   {3, 2, small},   {1, 0, image},   {2, 37, {4, 4, 1, 2, 3, 3, 2, 2, true, true}},
                        {2, 21, first}, {2, 21, middle}, {2, 21, last},   {1, 9, same}};
    for (const Maps& m : all) {
        cases.push_back(forward(m, "plain", uniform(-1, 1)));
        cases.push_back(backward(m, "plain"));
    }
    cases.push_back(forward({2, 3, image}, "windows", uniform(-1, 1), kWindow));
    cases.push_back(backward({2, 3, image}, "windows", false, true, kWindow));
    cases.push_back(forward({2, 3, second}, "windows", uniform(-1, 1), kWindow));
    cases.push_back(backward({2, 3, second}, "windows", false, true, kWindow));
    cases.push_back(backward({2, 3, second}, "adds", true));
    cases.push_back(backward({2, 3, frames}, "adds", true));
    cases.push_back(backward({2, 3, frames}, "first_layer", false, false));
    cases.push_back(backward({2, 21, first}, "first_layer", false, false));
    cases.push_back(backward({1, 5, middle}, "adds", true));
    OpCase c = forward({1, 2, image}, "nan", uniform(-1, 1).with(20, std::numeric_limits<double>::quiet_NaN()));
    c.makes_nan = true;
    cases.push_back(c);
}

}  // namespace millrace::ops::cases
