#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/pointwise/pointwise.h"

namespace millrace::ops::cases {
namespace {

struct PointShape {
    int k, g, rows, cols;
    [[nodiscard]] std::string text() const { return fmt::format("K{}_G{}_R{}_C{}", k, g, rows, cols); }
};
constexpr PointShape kSmall{2, 3, 7, 13};
constexpr PointShape kPointShapes[] = {{1, 1, 1, 1}, {1, 1, 0, 5}, {1, 1, 32, 256}, {3, 1, 5, 17}, {1, 4, 2, 8}, {1, 1, 300, 3}};

void add_activations(std::vector<OpCase>& cases, const PointShape& s, Activation activation, float dropout, Layout in, Layout out,
                     bool adding) {
    static constexpr const char* kNames[] = {"none", "relu", "gelu", "tanh", "sigmoid"};
    const std::string name = fmt::format("{}{}{}{}/{}", kNames[static_cast<int>(activation)], dropout > 0 ? "_drop" : "",
                                         in.left > 0 ? "_windows" : "", adding ? "_adding" : "", s.text());
    const auto start = [&](const OpDef* op, const char* title) {
        OpCase c;
        c.name = fmt::format("{}/{}", title, name);
        c.op = op;
        c.params = PointwiseParams{activation, dropout, 5};
        c.members = s.k;
        if (dropout > 0) c.states = sample_states(s.k);
        return c;
    };
    if (!adding) {
        namespace at = pointwise_forward;
        OpCase c = start(&pointwise_forward::kDef, "pointwise_forward");
        c.slot(at::x, Element::real, s.k, s.g, s.rows, s.cols, away(0.02, 3), in);
        if (dropout > 0) c.state(at::state);
        c.slot(at::y, Element::real, s.k, s.g, s.rows, s.cols, poison(), out);
        c.slots[at::y].exact_zeros = true;
        cases.push_back(c);
    }
    namespace at = pointwise_backward;
    OpCase c = start(&pointwise_backward::kDef, "pointwise_backward");
    c.slot(at::dy, Element::real, s.k, s.g, s.rows, s.cols, away(0.02, 1), out);
    c.slot(at::x, Element::real, s.k, s.g, s.rows, s.cols, away(0.02, 3), in);
    if (dropout > 0) c.state(at::state);
    c.slot(at::dx, Element::real, s.k, s.g, s.rows, s.cols, adding ? uniform(-1, 1) : poison(), in);
    if (adding) c.accumulates(at::dx);
    c.slots[at::dx].exact_zeros = !adding;
    cases.push_back(c);
}

OpCase copy_case(const std::string& note, const PointShape& s, Element from, Element to, Values values, Layout in = kDense,
                 Layout out = kDense) {
    OpCase c;
    c.name = fmt::format("copy/{}/{}", note, s.text());
    c.op = &copy::kDef;
    c.params = CopyParams{};
    c.members = s.k;
    c.f32_tolerance = c.bf16_tolerance = 0;
    c.slot(copy::in, from, s.k, s.g, s.rows, s.cols, std::move(values), in);
    return c.slot(copy::out, to, s.k, s.g, s.rows, s.cols, poison(), out);
}

void add_moves(std::vector<OpCase>& cases) {
    const auto fill_case = [](const std::string& note, const PointShape& s, Element element, double value, Layout layout) {
        OpCase c;
        c.name = fmt::format("fill/{}/{}", note, s.text());
        c.op = &fill::kDef;
        c.params = FillParams{value};
        c.members = s.k;
        c.f32_tolerance = c.bf16_tolerance = 0;
        return c.slot(fill::out, element, s.k, s.g, s.rows, s.cols, poison(), layout);
    };
    cases.push_back(fill_case("real", kSmall, Element::real, -1.5, kWindow));
    cases.push_back(fill_case("stat", kSmall, Element::stat, 0, kConcat));
    cases.push_back(fill_case("i32", kSmall, Element::i32, -7, kDense));
    for (const PointShape& whole : {PointShape{2, 1, 9, 16}, PointShape{1, 1, 37, 1024}}) {  // runs of 16 bytes without a gap
        cases.push_back(fill_case("real", whole, Element::real, -1.5, kDense));
        cases.push_back(fill_case("stat", whole, Element::stat, 0.375, kDense));
        cases.push_back(fill_case("i32", whole, Element::i32, -7, kDense));
    }
    cases.push_back(fill_case("f16", kSmall, Element::f16, -1.5, kWindow));
    cases.push_back(fill_case("real_one", {1, 1, 1, 1}, Element::real, 0.25, kDense));
    cases.push_back(fill_case("real_empty", {1, 1, 0, 4}, Element::real, 1, kDense));

    cases.push_back(copy_case("real_to_real", kSmall, Element::real, Element::real, uniform(-2, 2), kWindow, kConcat));
    cases.push_back(copy_case("real_to_stat", kSmall, Element::real, Element::stat, uniform(-2, 2)));
    cases.push_back(copy_case("stat_to_stat", {1, 1, 3, 1031}, Element::stat, Element::stat, uniform(-2, 2)));
    cases.push_back(copy_case("f32_to_bf16", kSmall, Element::f32, Element::bf16, uniform(-2, 2)));
    cases.push_back(copy_case("f32_to_bf16_nan", kSmall, Element::f32, Element::bf16,
                              uniform(-2, 2).with(5, std::numeric_limits<double>::quiet_NaN())));
    cases.back().makes_nan = true;
    // Ties go to the even neighbour: 1 + 2^-8 to 1, 1 + 3 * 2^-8 to 1 + 2^-6.
    cases.push_back(copy_case("f32_to_bf16_ties", {1, 1, 1, 4}, Element::f32, Element::bf16,
                              given({1.00390625, 1.01171875, -1.00390625, 3e38})));
    cases.push_back(copy_case("bf16_to_f32", kSmall, Element::bf16, Element::f32, uniform(-2, 2), kConcat, kWindow));
    cases.push_back(copy_case("f32_to_f16", kSmall, Element::f32, Element::f16, uniform(-2, 2)));
    // Ties, as above, at 2^-11; the last that does not become infinite, the first that does, the smallest, half of it.
    cases.push_back(copy_case("f32_to_f16_ties", {1, 1, 1, 8}, Element::f32, Element::f16,
                              given({1 + 0x1p-11, 1 + 0x3p-11, -1 - 0x1p-11, 65519, 65520, 0x1p-24, 0x1p-25,
                                     std::numeric_limits<double>::quiet_NaN()})));
    cases.back().makes_nan = true;
    cases.push_back(copy_case("f16_to_f32", kSmall, Element::f16, Element::f32, uniform(-2, 2), kConcat, kWindow));
    cases.push_back(copy_case("f16_to_bf16", kSmall, Element::f16, Element::bf16, uniform(-2, 2)));
    cases.push_back(copy_case("f64_to_f32", kSmall, Element::f64, Element::f32, uniform(-2, 2)));
    cases.push_back(copy_case("i32_to_real", kSmall, Element::i32, Element::real, integers(-100, 100)));
    cases.push_back(copy_case("real_to_i32", kSmall, Element::real, Element::i32, integers(-100, 100)));
    cases.push_back(copy_case("i32_to_i32_empty", {2, 1, 0, 4}, Element::i32, Element::i32, integers(-100, 100)));
}

}  // namespace

void add_pointwise_cases(std::vector<OpCase>& cases) {
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::tanh, Activation::sigmoid})
        for (const float dropout : {0.0f, 0.3f}) {
            add_activations(cases, kSmall, activation, dropout, kDense, kDense, false);
            add_activations(cases, kSmall, activation, dropout, kDense, kDense, true);
        }
    for (const PointShape& shape : kPointShapes) add_activations(cases, shape, Activation::gelu, 0.5f, kDense, kDense, false);
    add_activations(cases, kSmall, Activation::relu, 0.2f, kWindow, kConcat, false);

    const auto add_case = [](const std::string& note, const PointShape& s, bool second, bool adding, Layout in, Layout out) {
        OpCase c;
        c.name = fmt::format("add/{}/{}", note, s.text());
        c.op = &add::kDef;
        c.params = AddParams{};
        c.members = s.k;
        c.slot(add::a, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 1), in);
        if (second) c.slot(add::b, Element::real, s.k, s.g, s.rows, s.cols, uniform(-1, 1));
        c.slot(add::out, Element::real, s.k, s.g, s.rows, s.cols, adding ? uniform(-1, 1) : poison(), out);
        return adding ? c.accumulates(add::out) : c;
    };
    cases.push_back(add_case("two", kSmall, true, false, kDense, kDense));
    cases.push_back(add_case("two_windows", kSmall, true, false, kWindow, kConcat));
    cases.push_back(add_case("two_adding", kSmall, true, true, kDense, kDense));
    cases.push_back(add_case("one", kSmall, false, false, kDense, kDense));
    cases.push_back(add_case("one_adding_windows", kSmall, false, true, kConcat, kWindow));
    cases.push_back(add_case("two", {1, 1, 0, 3}, true, false, kDense, kDense));
    cases.push_back(add_case("two", {1, 1, 32, 256}, true, false, kDense, kDense));
    add_moves(cases);
}

}  // namespace millrace::ops::cases
