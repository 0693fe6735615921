#include "models/energy_flow/ops/flow.h"

#include "ops/kernels.h"

namespace millrace::ops {
namespace {

using Slots = std::initializer_list<int>;

/// Flow tables of as many members and rows as the first of them, what a step left of them, and counters.
Checker& check_rows(Checker& c, Slots tables, Slots moved, Slots counters) {
    const auto [k, g, n, cols] = c.shape(*tables.begin());
    c.require(tables, Type::stat, {k, 1, n, kFlowColumns}).require(moved, Type::stat, {k, 1, n, kMovedColumns});
    return c.require(counters, Type::i32, {k, 1, 1, kFlowCounters});
}

std::int64_t cells_of(const Checker& c, int slot) { return std::int64_t{c.shape(slot).rows} * c.shape(slot).cols; }

void check_grid(Checker& c, int slot, Type type, int k) {
    const auto& grid = c.params<FlowGridParams>();
    const Shape cells = c.shape(slot);
    c.require({slot}, type, {k, 1, cells.rows, cells.cols});
    c.that(grid.width >= 2 && grid.height >= 2 && grid.width * grid.height == cells.cols,
           "the surface must have width * height columns, both at least 2");
}

/// The neuron's parameters and what it gives for each row.
void check_neuron(Checker& c, int flow, Slots params, int values) {
    const auto& p = c.params<NeuronParams>();
    const auto [k, g, n, width] = c.shape(flow);
    const int total = c.shape(*params.begin()).cols, cols = c.shape(values).cols;
    c.require({values}, Type::real, {k, 1, n, cols}).require(params, Type::stat, {k, 1, 1, total});
    c.that(cols > kNeuronFeatures, "a row of the neuron's values has 65 columns or more");
    for (std::size_t t = 0; t < kNeuronTensors; ++t)
        c.that(p.offsets[t] >= 0 && p.offsets[t] + kNeuronSizes[t] <= total, "a tensor lies outside the span of parameters");
}

}  // namespace

MILLRACE_OPERATOR(flow_begin, Phase::forward, {"e"}, {"flow", write}, {"counters", write});
MILLRACE_OPERATOR(flow_begin_backward, Phase::backward, {"dflow"}, {"de", write});
MILLRACE_OPERATOR(flow_neuron_forward, Phase::forward, {"flow"}, {"params"}, {"counters"}, {"out", write});
MILLRACE_OPERATOR(flow_neuron_backward, Phase::backward, {"flow"}, {"params"}, {"counters"}, {"dout"}, {"dparams", add},
                  {"dflow", add});
MILLRACE_OPERATOR(flow_move, Phase::forward, {"before"}, {"u"}, {"state"}, {"counters"}, {"moved", write}, {"after", write});
MILLRACE_OPERATOR(flow_move_backward, Phase::backward, {"dafter"}, {"moved"}, {"du", write}, {"dbefore", add});
MILLRACE_OPERATOR(flow_spawn, Phase::forward, {"before"}, {"flow", update}, {"moved", update}, {"counters", update});
MILLRACE_OPERATOR(flow_spawn_state, Phase::forward, {"flow"}, {"h", update});
MILLRACE_OPERATOR(flow_spawn_backward, Phase::backward, {"moved"}, {"dafter", update}, {"dbefore", add});
MILLRACE_OPERATOR(flow_spawn_state_backward, Phase::backward, {"moved"}, {"dh", update});
MILLRACE_OPERATOR(flow_count, Phase::forward, {"flow"}, {"moved"}, {"counters"}, {"next", write});
MILLRACE_OPERATOR(flow_scatter, Phase::forward, {"flow"}, {"state", update}, {"surface", write});
MILLRACE_OPERATOR(flow_scatter_backward, Phase::backward, {"flow"}, {"dsurface"}, {"dflow", write});
MILLRACE_OPERATOR(flow_skip, Phase::forward, {"counters"}, {"before"}, {"after", update}, {"next", update});
MILLRACE_OPERATOR(flow_skip_backward, Phase::backward, {"counters"}, {"dafter"}, {"dbefore", update});
MILLRACE_OPERATOR(flow_clear, Phase::backward, {"counters"}, {"earlier"}, {"out0", update}, {"out1", update}, {"out2", update},
                  {"out3", update}, {"out4", update}, {"out5", update}, {"out6", update}, {"out7", update}, {"out8", update},
                  {"out9", update}, {"out10", update}, {"out11", update}, {"out12", update});

void flow_begin::check(Checker& c) {
    check_rows(c, {flow}, {}, {counters})
        .that(cells_of(c, e) <= c.shape(flow).rows, "fewer rows than cells: every cell starts a flow");
    check_grid(c, e, real, c.shape(flow).k);
}
void flow_begin_backward::check(Checker& c) {
    check_rows(c, {dflow}, {}, {}).that(cells_of(c, de) <= c.shape(dflow).rows, "fewer rows than cells");
    c.require({de}, real, {c.shape(dflow).k, 1, c.shape(de).rows, c.shape(de).cols});
}

void flow_neuron_forward::check(Checker& c) { check_neuron(check_rows(c, {flow}, {}, {counters}), flow, {params}, out); }
void flow_neuron_backward::check(Checker& c) {
    check_neuron(check_rows(c, {flow, dflow}, {}, {counters}), flow, {params, dparams}, dout);
}

void flow_move::check(Checker& c) {
    const auto& p = c.params<FlowMoveParams>();
    const auto [k, g, n, cols] = c.shape(before);
    check_rows(c, {before, after}, {moved}, {counters}).require({u}, real, {k, 1, n, 4}).state(state, k, p.noise > 0);
    c.that(p.width >= 2 && p.height >= 2, "width and height must be at least 2");
    c.that(p.max_spawn == 0 || p.spawn_length > 0, "spawn_length must be above 0");
}
void flow_move_backward::check(Checker& c) {
    const auto [k, g, n, cols] = c.shape(dafter);
    check_rows(c, {dafter, dbefore}, {moved}, {}).require({du}, real, {k, 1, n, 4});
}

void flow_spawn::check(Checker& c) { check_rows(c, {before, flow}, {moved}, {counters}); }
void flow_spawn_state::check(Checker& c) {
    const auto [k, g, n, cols] = c.shape(flow);
    check_rows(c, {flow}, {}, {}).require({h}, real, {k, 1, n, c.shape(h).cols});
}
void flow_spawn_backward::check(Checker& c) { check_rows(c, {dafter, dbefore}, {moved}, {}); }
void flow_spawn_state_backward::check(Checker& c) {
    const auto [k, g, n, cols] = c.shape(dh);
    c.require({dh}, stat, {k, 1, n, cols}).require({moved}, stat, {k, 1, n, kMovedColumns});
}

void flow_count::check(Checker& c) { check_rows(c, {flow}, {moved}, {counters, next}).params<FlowCountParams>(); }
void flow_scatter::check(Checker& c) {
    check_grid(check_rows(c, {flow}, {}, {}).state(state, c.shape(flow).k), surface, stat, c.shape(flow).k);
}
void flow_scatter_backward::check(Checker& c) {
    check_grid(check_rows(c, {flow, dflow}, {}, {}), dsurface, stat, c.shape(flow).k);
}

void flow_skip::check(Checker& c) { check_rows(c, {before, after}, {}, {counters, next}).params<FlowCountParams>(); }
void flow_skip_backward::check(Checker& c) { check_rows(c, {dafter, dbefore}, {}, {counters}); }
void flow_clear::check(Checker& c) {
    const int k = c.shape(counters).k;
    c.require({counters, earlier}, i32, {k, 1, 1, kFlowCounters}).needs({out0});
    for (int slot = out0; slot < slots; ++slot)
        c.allow({slot}, floating, {k, 1, c.shape(slot).rows, c.shape(slot).cols}).needs({slot - 1}, c[slot].present());
}
MILLRACE_REWRITE(counted_move, flow_move, 0);

}  // namespace millrace::ops
