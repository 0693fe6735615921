// The carrier of the energy flow: GRU, the sums of its biases, the neuron in front of it.

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "flow_table.h"
#include "models/energy_flow/ops/flow.h"
#include "ops/dense/dense.h"
#include "ops/recurrent/gru.h"

namespace millrace::ops::cases {
namespace {

constexpr Layout kPadded{0, 8, false, false};

struct Cell {
    int k, rows, in, cols, hidden;  ///< x has `cols` columns, of which `in` are read
    double alive = 0.7;
    int stopped = -1;
    [[nodiscard]] FlowSpec spec() const { return {k, 1, rows, 1, 0, 0, alive, stopped}; }
    [[nodiscard]] std::string text() const {
        return fmt::format("K{}_N{}_In{}_C{}_H{}{}{}", k, rows, in, cols, hidden,
                           alive == 1   ? "_all"
                           : alive == 0 ? "_none"
                                        : "",
                           stopped >= 0 ? "_stopped" : "");
    }
};
const Cell kCells[] = {{1, 1, 1, 1, 1, 1},          {2, 7, 5, 8, 3, 0.7},      {2, 7, 5, 8, 3, 1},
                       {3, 37, 13, 13, 31, 0.6, 1}, {1, 131, 65, 72, 64, 0.8}, {1, 300, 65, 72, 16, 0.05},
                       {1, 16, 8, 8, 8, 0},         {1, 5, 300, 304, 67, 1},   {1, 0, 5, 8, 3, 1},
                       {2, 64, 32, 32, 32, 1},      {1, 40, 129, 136, 136},    {1, 300, 65, 72, 128, 0.8},
                       {1, 517, 192, 192, 192, 1},  {1, 129, 40, 40, 64, 0.5}};

/// The mask is a column among others, the flag one of several numbers; both are left out where all rows take part.
void take_part(OpCase& c, int mask, int flag, const Cell& cell) {
    if (cell.alive == 1 && cell.stopped < 0) return;
    std::vector<double> rows, flags;
    for (int m = 0; m < cell.k; ++m) {
        for (int row = 0; row < cell.rows; ++row)
            rows.push_back(is_alive({cell.k, 1, cell.rows, 1, 0, 0, cell.alive}, m, row) ? 1 : 0);
        flags.push_back(m == cell.stopped ? 0 : 1);
    }
    c.slot(mask, Element::stat, cell.k, 1, cell.rows, 1, given(rows), {5, 2, false, false});
    c.slot(flag, Element::i32, cell.k, 1, 1, 1, given(flags), {11, 4, false, false});
}

OpCase gru(const Cell& cell, bool training, Layout layout, const char* note) {
    namespace at = gru_forward;
    OpCase c;
    c.name = fmt::format("gru_forward/{}{}/{}", training ? "training" : "evaluation", note, cell.text());
    c.op = &gru_forward::kDef;
    c.params = GruParams{};
    c.members = cell.k;
    const int k = cell.k, n = cell.rows, h = cell.hidden;
    c.slot(at::x, Element::real, k, 1, n, cell.cols, uniform(-1, 1), layout);
    c.slot(at::h, Element::real, k, 1, n, h, uniform(-1, 1), layout);
    take_part(c, at::mask, at::flag, cell);
    const double spread = 2 / std::sqrt(cell.in + h);
    c.slot(at::w_ih, Element::real, k, 1, 3 * h, cell.in, uniform(-spread, spread));
    c.slot(at::w_hh, Element::real, k, 1, 3 * h, h, uniform(-spread, spread));
    c.slot(at::b_ih, Element::stat, k, 1, 1, 3 * h, uniform(-0.5, 0.5));
    c.slot(at::b_hh, Element::stat, k, 1, 1, 3 * h, uniform(-0.5, 0.5));
    c.slot(at::scratch, Element::stat, k, 1, n, 6 * h, poison());
    c.slots[at::scratch].compare = false;
    if (training) {
        c.slot(at::gates, Element::real, k, 1, n, 4 * h, poison(), layout);
        c.slots[at::gates].compare = cell.alive == 1 && cell.stopped < 0;
    }
    return c.slot(at::out, Element::real, k, 1, n, h, poison(), layout);
}

/// What flows into dh, by the columns of each pair.
using Pairs = std::vector<int>;

OpCase gru_back(const Cell& cell, const Pairs& pairs, bool begins, Layout layout) {
    namespace at = gru_backward;
    OpCase c;
    c.name = fmt::format("gru_backward/{}{}{}/{}", begins ? "begins_" : "", fmt::join(pairs, "+"),
                         layout.right > 0 ? "_padded" : "", cell.text());
    c.op = &gru_backward::kDef;
    c.params = GruBackwardParams{begins};
    c.members = cell.k;
    const int k = cell.k, n = cell.rows, h = cell.hidden;
    std::vector<double> gates;  // what rows that are not alive hold is undefined
    for (int m = 0; m < k; ++m)
        for (int row = 0; row < n; ++row)
            for (int i = 0; i < 4 * h; ++i) {
                const double value = std::floor(number(31, gates.size(), -120, 120)) / 128;
                gates.push_back(is_alive(cell.spec(), m, row) ? value : std::numeric_limits<double>::quiet_NaN());
            }
    c.slot(at::dh, Element::stat, k, 1, n, h, begins ? poison() : uniform(-1, 1), layout);
    c.slot(at::gates, Element::real, k, 1, n, 4 * h, given(gates), layout);
    c.slot(at::h, Element::real, k, 1, n, h, uniform(-1, 1), layout);
    take_part(c, at::mask, at::flag, cell);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const double spread = 1 / std::sqrt(pairs[i]);
        c.slot(at::a0 + 2 * static_cast<int>(i), Element::real, k, 1, n, pairs[i], uniform(-1, 1), layout);
        c.slot(at::w0 + 2 * static_cast<int>(i), Element::real, k, 1, pairs[i], h, uniform(-spread, spread));
    }
    return c.slot(at::dgates, Element::real, k, 1, n, 4 * h, poison(), layout);
}

OpCase sum(int k, int g, int rows, int cols, Element element, bool adding, Layout layout = kDense) {
    OpCase c;
    c.name =
        fmt::format("column_sum/{}{}{}{}/K{}_G{}_R{}_C{}", element == Element::real ? "real" : "stat", adding ? "_adding" : "",
                    layout.left > 0 ? "_window" : "", layout.groups_in_row ? "_concat" : "", k, g, rows, cols);
    c.op = &column_sum::kDef;
    c.params = ColumnSumParams{};
    c.members = k;
    c.slot(column_sum::in, element, k, g, rows, cols, uniform(-1, 1), layout);
    c.slot(column_sum::out, Element::stat, k, g, 1, cols, adding ? uniform(-1, 1) : poison());
    return adding ? c.accumulates(column_sum::out) : c;
}

/// Three sums of one matrix, as a recurrent layer's biases take them of its gates' gradients.
OpCase three_sums(int k, int rows, int width, Layout layout = kDense) {
    OpCase c;
    c.name = fmt::format("column_sum/three{}/K{}_R{}_H{}", layout.left > 0 ? "_window" : "", k, rows, width);
    c.op = &column_sum::kDef;
    c.params = ColumnSumParams{{0, 0, 3 * width}};
    c.members = k;
    c.slot(column_sum::in, Element::real, k, 1, rows, 4 * width, uniform(-1, 1), layout);
    c.slot(column_sum::out, Element::stat, k, 1, 1, 3 * width, poison());
    c.slot(column_sum::second, Element::stat, k, 1, 1, 2 * width, uniform(-1, 1));
    c.slot(column_sum::third, Element::stat, k, 1, 1, width, uniform(-1, 1));
    return c.accumulates(column_sum::second).accumulates(column_sum::third);
}

constexpr int kNeuronSizes[kNeuronTensors] = {9,
                                              3,
                                              kNeuronHidden * 4,
                                              kNeuronHidden,
                                              kNeuronHidden,
                                              kNeuronHidden,
                                              kNeuronHidden* kNeuronHidden,
                                              kNeuronHidden,
                                              kNeuronHidden,
                                              kNeuronHidden,
                                              kNeuronFeatures* kNeuronHidden,
                                              kNeuronFeatures};

/// The tensors in a span with room before and after each.
NeuronParams neuron_params(int gap, int& total) {
    NeuronParams params;
    total = 0;
    for (std::size_t t = 0; t < kNeuronTensors; ++t) {
        params.offsets[t] = total + gap;
        total += gap + kNeuronSizes[t];
    }
    total += gap;
    return params;
}

void add_neuron(std::vector<OpCase>& cases, const FlowSpec& spec, int cols, int gap, bool adding, Layout layout) {
    int total = 0;
    const NeuronParams params = neuron_params(gap, total);
    const std::string name = fmt::format("C{}_gap{}{}/{}", cols, gap, layout.right > 0 ? "_padded" : "", spec.text());
    const int k = spec.k, n = spec.rows();
    const auto flow = given(flow_values(spec, 2)), counters = given(counter_values(spec));
    if (!adding) {
        namespace at = flow_neuron_forward;
        OpCase c;
        c.name = "flow_neuron_forward/" + name;
        c.op = &flow_neuron_forward::kDef;
        c.params = params;
        c.members = k;
        c.slot(at::flow, Element::stat, k, 1, n, kFlowColumns, flow);
        c.slot(at::params, Element::stat, k, 1, 1, total, uniform(-0.6, 0.6));
        c.slot(at::counters, Element::i32, k, 1, 1, kFlowCounters, counters);
        c.slot(at::out, Element::real, k, 1, n, cols, poison(), layout);
        cases.push_back(c);
    }
    namespace at = flow_neuron_backward;
    OpCase c;
    c.name = fmt::format("flow_neuron_backward/{}{}", adding ? "adding_" : "", name);
    c.op = &flow_neuron_backward::kDef;
    c.params = params;
    c.members = k;
    c.slot(at::flow, Element::stat, k, 1, n, kFlowColumns, flow);
    c.slot(at::params, Element::stat, k, 1, 1, total, uniform(-0.6, 0.6));
    c.slot(at::counters, Element::i32, k, 1, 1, kFlowCounters, counters);
    c.slot(at::dout, Element::real, k, 1, n, cols, uniform(-1, 1), layout);
    c.slot(at::dparams, Element::stat, k, 1, 1, total, uniform(-1, 1));
    c.slot(at::dflow, Element::stat, k, 1, n, kFlowColumns, adding ? given(flow_gradient(spec, 3)) : poison());
    if (adding) c.accumulates(at::dparams).accumulates(at::dflow);
    cases.push_back(c);
}

}  // namespace

void add_gru_cases(std::vector<OpCase>& cases) {
    for (const Cell& cell : kCells) {
        cases.push_back(gru(cell, true, kDense, ""));
        const int h = cell.hidden;
        cases.push_back(gru_back(cell, {}, false, kDense));
        cases.push_back(gru_back(cell, {3 * h}, true, kDense));
        cases.push_back(gru_back(cell, {24, 8, 2 * h, h}, false, kDense));
    }
    const Cell stopped{3, 21, 11, 16, 24, 0.8, 1}, all{2, 33, 16, 24, 40, 1};
    for (const Cell& cell : {stopped, all}) {
        cases.push_back(gru(cell, false, kDense, ""));
        cases.push_back(gru(cell, true, kPadded, "_padded"));
        cases.push_back(gru_back(cell, {}, true, kDense));
        cases.push_back(gru_back(cell, {}, false, kPadded));
        cases.push_back(gru_back(cell, {5, 17}, false, kPadded));
    }
    for (const Element element : {Element::real, Element::stat}) {
        for (const bool adding : {false, true}) {
            cases.push_back(sum(2, 1, 37, 13, element, adding));
            cases.push_back(sum(1, 1, 1500, 24, element, adding));
            cases.push_back(sum(1, 1, 1, 1, element, adding));
            cases.push_back(sum(1, 1, 0, 5, element, adding));
        }
        cases.push_back(sum(1, 1, 67, 1100, element, false));
        cases.push_back(sum(2, 3, 11, 7, element, false, kConcat));
        cases.push_back(sum(3, 1, 129, 96, element, true, kWindow));
    }
    cases.push_back(three_sums(1, 300, 24));
    cases.push_back(three_sums(2, 37, 5, kWindow));
    for (const bool adding : {false, true}) {
        add_neuron(cases, {.k = 2, .samples = 1, .width = 5, .height = 3}, 72, 3, adding, kDense);
        add_neuron(cases, {.k = 3, .samples = 2, .width = 7, .height = 5, .spare = 9, .taken = 4, .stopped = 1}, 72, 0, adding,
                   kPadded);
        add_neuron(cases, {.samples = 1, .width = 33, .height = 31, .alive = 0.9}, 65, 1, adding, kDense);
    }
    add_neuron(cases, {.samples = 1, .width = 2, .height = 2, .alive = 0}, 72, 4, false, kDense);
    add_neuron(cases, {.samples = 1, .width = 13, .height = 5, .alive = 1}, 96, 4, false, kDense);
    add_neuron(cases, {.samples = 0, .width = 2, .height = 2}, 72, 4, false, kDense);
}

}  // namespace millrace::ops::cases
