// Where flows begin and where they scatter their energy.

#include <limits>

#include <fmt/format.h>

#include "flow_table.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::ops::cases {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void add_begin(std::vector<OpCase>& cases, const FlowSpec& spec, Layout layout) {
    const int k = spec.k, n = spec.rows();
    const auto start = [&](const OpDef* op, const char* title) {
        OpCase c;
        c.name = fmt::format("{}/{}{}", title, layout.right > 0 ? "window/" : "", spec.text());
        c.op = op;
        c.params = FlowGridParams{spec.width, spec.height};
        c.members = k;
        c.f32_tolerance = 2e-6;
        return c;
    };
    OpCase c = start(&flow_begin::kDef, "flow_begin");
    c.slot(flow_begin::e, Element::real, k, 1, spec.samples, spec.cells(), uniform(-1, 1).with(1, 0), layout);
    c.slot(flow_begin::flow, Element::stat, k, 1, n, kFlowColumns, poison());
    c.slot(flow_begin::counters, Element::i32, k, 1, 1, kFlowCounters, integers(5, 9));
    cases.push_back(c);
    c = start(&flow_begin_backward::kDef, "flow_begin_backward");
    c.slot(flow_begin_backward::dflow, Element::stat, k, 1, n, kFlowColumns, given(flow_gradient(spec, 15)));
    c.slot(flow_begin_backward::de, Element::real, k, 1, spec.samples, spec.cells(), poison(), layout);
    cases.push_back(c);
}

struct Bad {
    int row = 0, column = 0;
    double value = 0;
};

/// Some flows stand exactly on walls and in corners, where the far cell gets everything.
std::vector<double> resting(const FlowSpec& spec, const std::vector<Bad>& bad) {
    std::vector<double> values = flow_values(spec, 16);
    const auto set = [&](int row, int column, double value) {
        if (row < spec.used()) values[static_cast<std::size_t>(row) * kFlowColumns + static_cast<std::size_t>(column)] = value;
    };
    set(0, flow::x, 1);
    set(1, flow::x, -1);
    set(2, flow::y, 1);
    set(3, flow::y, -1);
    set(3, flow::x, 1);
    set(3, flow::z, 0);
    for (const Bad& b : bad) set(b.row, b.column, b.value);
    return values;
}

void add_scatter(std::vector<OpCase>& cases, const FlowSpec& spec, const std::string& note, const std::vector<Bad>& bad = {}) {
    const int k = spec.k, n = spec.rows();
    const auto start = [&](const OpDef* op, const char* title) {
        OpCase c;
        c.name = fmt::format("{}/{}/{}", title, note, spec.text());
        c.op = op;
        c.params = FlowGridParams{spec.width, spec.height};
        c.members = k;
        c.f32_tolerance = c.bf16_tolerance = 1e-5;  // the place inside a cell loses the bits that its number takes
        return c;
    };
    const Values flow = given(resting(spec, bad));
    OpCase c = start(&flow_scatter::kDef, "flow_scatter");
    c.states = sample_states(k);
    c.slot(flow_scatter::flow, Element::stat, k, 1, n, kFlowColumns, flow);
    c.state(flow_scatter::state);
    c.slot(flow_scatter::surface, Element::stat, k, 1, spec.samples, spec.cells(), poison());
    cases.push_back(c);
    c = start(&flow_scatter_backward::kDef, "flow_scatter_backward");
    c.slot(flow_scatter_backward::flow, Element::stat, k, 1, n, kFlowColumns, flow);
    c.slot(flow_scatter_backward::dsurface, Element::stat, k, 1, spec.samples, spec.cells(), uniform(-1, 1));
    c.slot(flow_scatter_backward::dflow, Element::stat, k, 1, n, kFlowColumns, poison());
    cases.push_back(c);
}

}  // namespace

void add_flow_end_cases(std::vector<OpCase>& cases) {
    const FlowSpec small{.k = 2, .samples = 2, .width = 5, .height = 3};
    const FlowSpec spare{.k = 3, .samples = 2, .width = 7, .height = 5, .spare = 23, .taken = 6, .stopped = 1};
    const FlowSpec large{.samples = 3, .width = 19, .height = 17, .spare = 40, .taken = 11};
    const FlowSpec tiny{.samples = 1, .width = 2, .height = 2, .alive = 1};
    for (const FlowSpec& spec : {small, spare, large, tiny}) {
        add_begin(cases, spec, kDense);
        add_scatter(cases, spec, "resting");
    }
    add_begin(cases, small, kWindow);
    const double infinity = std::numeric_limits<double>::infinity();
    add_scatter(cases, spare, "energy_nan", {{4, flow::energy, kNaN}});
    add_scatter(cases, spare, "energy_infinite", {{4, flow::energy, infinity}, {5, flow::energy, -infinity}});
    add_scatter(cases, spare, "energy_beyond", {{4, flow::energy, 3e6}, {4, flow::active, 0}});
    add_scatter(cases, spare, "place_nan", {{4, flow::x, kNaN}, {5, flow::y, kNaN}, {6, flow::z, kNaN}, {6, flow::active, 1}});
    add_scatter(cases, small, "place_infinite", {{4, flow::x, infinity}, {5, flow::y, -infinity}});
    // Many flows in one cell: the sums are exact whatever their order.
    add_scatter(cases, {.k = 2, .samples = 1, .width = 2, .height = 2, .spare = 997, .taken = 997, .alive = 0.5}, "crowded");
    add_scatter(cases, {.samples = 5, .width = 29, .height = 31, .alive = 0.5}, "many");
}

}  // namespace millrace::ops::cases
