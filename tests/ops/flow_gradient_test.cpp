// Backward operators of the energy flow against central differences of the reference backend's forward operators.

#include <gtest/gtest.h>

#include <numeric>

#include "flow_table.h"
#include "models/energy_flow/ops/flow.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrent/gru.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

constexpr double kFlowTolerance = 1e-7;

/// Operands of a flow table; counters are [K, kFlowCounters] in memory, which is all the reference looks at.
struct Table {
    FlowSpec spec;
    RefProgram::Id flow, counters;

    Table(RefProgram& p, const FlowSpec& of, std::uint32_t stream) : spec(of) {
        flow = p.tensor(of.k, 1, of.rows(), kFlowColumns, flow_values(of, stream));
        std::vector<std::int32_t> counts;
        for (const double value : counter_values(of)) counts.push_back(static_cast<std::int32_t>(value));
        counters = p.integer_matrix(p.indices(of.k, kFlowCounters, counts), 1, kFlowCounters);
    }
};

/// Columns from heading on say which flow it is: no gradient is asked for there.
double place_and_energy_error(RefProgram& p, RefProgram::Id flow, RefProgram::Id gradient, const FlowSpec& spec,
                              const std::function<double()>& objective) {
    double error = 0;
    const int rows = spec.k * spec.rows();
    for (int row = 0; row < rows; ++row)
        for (int c = flow::x; c <= flow::energy; ++c) {
            const auto at = static_cast<std::size_t>(row * kFlowColumns + c);
            error = std::max(error, p.gradient_error(flow, gradient, objective, at, 1));
        }
    return error;
}

TEST(GruGradient, EqualsCentralDifferences) {
    namespace f = gru_forward;
    namespace b = gru_backward;
    constexpr int K = 2, N = 7, In = 4, C = 6, H = 3;
    RefProgram p;
    const auto mask = p.tensor(K, 1, N, 1, {1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1});
    const auto flag = p.indices(K, 1, {1, 1});
    const auto x = p.random(K, 1, N, C, -1, 1), h = p.random(K, 1, N, H, -1, 1);
    const auto w_ih = p.random(K, 1, 3 * H, In, -1, 1), w_hh = p.random(K, 1, 3 * H, H, -1, 1);
    const auto b_ih = p.random(K, 1, 1, 3 * H, -1, 1), b_hh = p.random(K, 1, 1, 3 * H, -1, 1);
    const auto scratch = p.tensor(K, 1, N, 6 * H), gates = p.tensor(K, 1, N, 4 * H), out = p.tensor(K, 1, N, H);
    constexpr int C0 = 5, C1 = 2;  // dout reaches the operator as what dh holds and two products
    const auto known = p.random(K, 1, N, H, -1, 1), dout = p.tensor(K, 1, N, H), dh = p.tensor(K, 1, N, H);
    const auto a0 = p.random(K, 1, N, C0, -1, 1), v0 = p.random(K, 1, C0, H, -1, 1);
    const auto a1 = p.random(K, 1, N, C1, -1, 1), v1 = p.random(K, 1, C1, H, -1, 1);
    const auto dgates = p.tensor(K, 1, N, 4 * H);
    for (const auto sum : {dout, dh}) p.add(&copy::kDef, CopyParams{}, {{copy::in, known}, {copy::out, sum}});
    for (const auto& [a, w] : {std::pair(a0, v0), std::pair(a1, v1)})
        p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, a}, {linear_dgrad::w, w}, {linear_dgrad::dx, dout}},
              1u << linear_dgrad::dx);
    const auto dx = p.tensor(K, 1, N, C, std::vector<double>(K * N * C, 0.0));
    const auto dw_ih = p.tensor(K, 1, 3 * H, In), dw_hh = p.tensor(K, 1, 3 * H, H);
    const auto db_ih = p.tensor(K, 1, 1, 3 * H), db_hh = p.tensor(K, 1, 1, 3 * H);
    p.add(&gru_forward::kDef, GruParams{},
          {{f::x, x},
           {f::h, h},
           {f::mask, mask},
           {f::flag, flag},
           {f::w_ih, w_ih},
           {f::w_hh, w_hh},
           {f::b_ih, b_ih},
           {f::b_hh, b_hh},
           {f::scratch, scratch},
           {f::gates, gates},
           {f::out, out}});
    p.add(&gru_backward::kDef, GruBackwardParams{},
          {{b::dh, dh},
           {b::gates, gates},
           {b::h, h},
           {b::mask, mask},
           {b::flag, flag},
           {b::a0, a0},
           {b::w0, v0},
           {b::a1, a1},
           {b::w1, v1},
           {b::dgates, dgates}});
    const auto input_side = p.window(dgates, 0, N, 0, 3 * H);
    const auto products = [&](RefProgram::Id dz, RefProgram::Id w, RefProgram::Id in, RefProgram::Id din, RefProgram::Id dw,
                              RefProgram::Id db, bool adding) {
        p.add(&linear_dgrad::kDef, LinearGradParams{}, {{linear_dgrad::dz, dz}, {linear_dgrad::w, w}, {linear_dgrad::dx, din}},
              adding ? 1u << linear_dgrad::dx : 0u);
        p.add(&linear_wgrad::kDef, LinearGradParams{}, {{linear_wgrad::dz, dz}, {linear_wgrad::x, in}, {linear_wgrad::dw, dw}});
        p.add(&column_sum::kDef, ColumnSumParams{}, {{column_sum::in, dz}, {column_sum::out, db}});
    };
    products(input_side, w_ih, p.window(x, 0, N, 0, In), p.window(dx, 0, N, 0, In), dw_ih, db_ih, false);
    products(p.window(dgates, 0, N, 0, 2 * H), p.window(w_hh, 0, 2 * H, 0, H), h, dh, p.window(dw_hh, 0, 2 * H, 0, H),
             p.window(db_hh, 0, 1, 0, 2 * H), true);
    products(p.window(dgates, 0, N, 3 * H, H), p.window(w_hh, 2 * H, H, 0, H), h, dh, p.window(dw_hh, 2 * H, H, 0, H),
             p.window(db_hh, 0, 1, 2 * H, H), true);
    const auto objective = functional(p, out, dout);
    EXPECT_LT(p.gradient_error(x, dx, objective), kFlowTolerance);
    EXPECT_LT(p.gradient_error(h, dh, objective), kFlowTolerance);
    EXPECT_LT(p.gradient_error(w_ih, dw_ih, objective), kFlowTolerance);
    EXPECT_LT(p.gradient_error(w_hh, dw_hh, objective), kFlowTolerance);
    EXPECT_LT(p.gradient_error(b_ih, db_ih, objective), kFlowTolerance);
    EXPECT_LT(p.gradient_error(b_hh, db_hh, objective), kFlowTolerance);
}

TEST(FlowNeuronGradient, EqualsCentralDifferences) {
    namespace f = flow_neuron_forward;
    namespace b = flow_neuron_backward;
    const FlowSpec spec{.samples = 1, .width = 5, .height = 1};
    constexpr int sizes[kNeuronTensors] = {9, 3, 128, 32, 32, 32, 1024, 32, 32, 32, 2048, 64};
    NeuronParams params;
    int total = 0;
    for (int t = 0; t < kNeuronTensors; total += sizes[t++]) params.offsets[t] = total;
    RefProgram p;
    const Table table(p, spec, 2);
    const auto weights = p.random(1, 1, 1, total, -0.6, 0.6), dweights = p.tensor(1, 1, 1, total);
    const auto out = p.tensor(1, 1, spec.rows(), 66), dout = p.random(1, 1, spec.rows(), 66, -1, 1);
    const auto dflow = p.tensor(1, 1, spec.rows(), kFlowColumns);
    p.add(&flow_neuron_forward::kDef, params,
          {{f::flow, table.flow}, {f::params, weights}, {f::counters, table.counters}, {f::out, out}});
    p.add(&flow_neuron_backward::kDef, params,
          {{b::flow, table.flow},
           {b::params, weights},
           {b::counters, table.counters},
           {b::dout, dout},
           {b::dparams, dweights},
           {b::dflow, dflow}});
    const auto objective = functional(p, out, dout);
    EXPECT_LT(p.gradient_error(weights, dweights, objective), kFlowTolerance);
    EXPECT_LT(place_and_energy_error(p, table.flow, dflow, spec, objective), kFlowTolerance);
}

/// Steps of the flows as the carrier sees them: move, then children. Rows mirror, arrive, spawn and are refused.
struct Step {
    RefProgram p;
    FlowSpec spec{.k = 2, .samples = 1, .width = 5, .height = 4, .spare = 9, .taken = 2};
    Table table{p, spec, 4};
    int rows = spec.rows();
    RefProgram::Id u = p.random(2, 1, rows, 4, -2, 2), state = p.states(sample_states(2));
    RefProgram::Id moved = p.tensor(2, 1, rows, kMovedColumns), after = p.tensor(2, 1, rows, kFlowColumns);
    RefProgram::Id dafter = p.tensor(2, 1, rows, kFlowColumns, flow_gradient(spec, 20));
    RefProgram::Id functional_of = p.tensor(2, 1, rows, kFlowColumns, flow_gradient(spec, 20));
    RefProgram::Id du = p.tensor(2, 1, rows, 4), dbefore = p.tensor(2, 1, rows, kFlowColumns);

    void move(int max_spawn) {
        namespace f = flow_move;
        const FlowMoveParams params{
            .width = 5, .height = 4, .drift = 0.4f, .noise = 0.3f, .spawn_length = 0.25f, .max_spawn = max_spawn};
        p.add(&flow_move::kDef, params,
              {{f::before, table.flow},
               {f::u, u},
               {f::state, state},
               {f::counters, table.counters},
               {f::moved, moved},
               {f::after, after}});
    }
    void move_back(bool adding) {
        namespace b = flow_move_backward;
        p.add(&flow_move_backward::kDef, FlowMoveParams{},
              {{b::dafter, dafter}, {b::moved, moved}, {b::du, du}, {b::dbefore, dbefore}}, adding ? 1u << b::dbefore : 0u);
    }
    double moved_sum(int column, int bit) {
        double count = 0;
        const auto& values = p.values(moved);
        for (std::size_t i = static_cast<std::size_t>(column); i < values.size(); i += kMovedColumns)
            count += bit == 0 ? values[i] : (static_cast<int>(values[i]) & bit) != 0 ? 1 : 0;
        return count;
    }
};

TEST(FlowMoveGradient, EqualsCentralDifferences) {
    Step step;
    step.move(0);
    step.move_back(false);
    const auto objective = functional(step.p, step.after, step.functional_of);
    EXPECT_LT(step.p.gradient_error(step.u, step.du, objective), kFlowTolerance);
    EXPECT_LT(place_and_energy_error(step.p, step.table.flow, step.dbefore, step.spec, objective), kFlowTolerance);
    step.p.run();
    for (const int bit : {kMirroredX, kMirroredY, kCutZ, kAlive}) EXPECT_GT(step.moved_sum(moved::bits, bit), 0) << bit;
}

TEST(FlowSpawnGradient, EqualsCentralDifferences) {
    Step step;
    RefProgram& p = step.p;
    constexpr int H = 3;
    const auto h = p.random(2, 1, step.rows, H, -1, 1), held = p.tensor(2, 1, step.rows, H);
    const auto dh = p.random(2, 1, step.rows, H, -1, 1), weight = p.tensor(2, 1, step.rows, H, p.values(dh));
    step.move(3);
    p.add(&flow_spawn::kDef, FlowSpawnParams{},
          {{flow_spawn::before, step.table.flow},
           {flow_spawn::flow, step.after},
           {flow_spawn::moved, step.moved},
           {flow_spawn::counters, step.table.counters}});
    p.add(&copy::kDef, CopyParams{}, {{copy::in, h}, {copy::out, held}});
    p.add(&flow_spawn_state::kDef, FlowSpawnParams{}, {{flow_spawn_state::flow, step.after}, {flow_spawn_state::h, held}});
    p.add(&flow_spawn_backward::kDef, FlowSpawnParams{},
          {{flow_spawn_backward::moved, step.moved},
           {flow_spawn_backward::dafter, step.dafter},
           {flow_spawn_backward::dbefore, step.dbefore}});
    step.move_back(true);
    p.add(&flow_spawn_state_backward::kDef, FlowSpawnParams{},
          {{flow_spawn_state_backward::moved, step.moved}, {flow_spawn_state_backward::dh, dh}});
    const auto flows = functional(p, step.after, step.functional_of), states = functional(p, held, weight);
    EXPECT_LT(p.gradient_error(step.u, step.du, flows), kFlowTolerance);
    EXPECT_LT(place_and_energy_error(p, step.table.flow, step.dbefore, step.spec, flows), kFlowTolerance);
    EXPECT_LT(p.gradient_error(h, dh, states), kFlowTolerance);
    p.run();
    EXPECT_GT(step.moved_sum(moved::admitted, 0), 0);
    EXPECT_GT(step.moved_sum(moved::wanted, 0), step.moved_sum(moved::admitted, 0));
}

TEST(FlowLayGradient, EqualsCentralDifferences) {
    const FlowSpec spec{.k = 2, .samples = 2, .width = 4, .height = 3, .spare = 5, .taken = 3};
    RefProgram p;
    const Table table(p, spec, 16);
    const auto state = p.states(sample_states(2)), surface = p.tensor(2, 1, 2, spec.cells());
    const auto dsurface = p.random(2, 1, 2, spec.cells(), -1, 1), dflow = p.tensor(2, 1, spec.rows(), kFlowColumns);
    const FlowGridParams grid{spec.width, spec.height};
    p.add(&flow_scatter::kDef, grid,
          {{flow_scatter::flow, table.flow}, {flow_scatter::state, state}, {flow_scatter::surface, surface}});
    p.add(&flow_scatter_backward::kDef, grid,
          {{flow_scatter_backward::flow, table.flow},
           {flow_scatter_backward::dsurface, dsurface},
           {flow_scatter_backward::dflow, dflow}});
    // The surface is a sum of multiples of 2^-40, which the differences see as steps.
    EXPECT_LT(place_and_energy_error(p, table.flow, dflow, spec, functional(p, surface, dsurface)), 1e-5);
}

TEST(FlowScatter, LaysDownWhatArrivedFlowsCarry) {
    FlowSpec spec{.samples = 1, .width = 6, .height = 5, .alive = 0};
    RefProgram p;
    const Table table(p, spec, 16);
    const auto state = p.states(sample_states(1)), surface = p.tensor(1, 1, 1, spec.cells());
    p.add(&flow_scatter::kDef, FlowGridParams{6, 5},
          {{flow_scatter::flow, table.flow}, {flow_scatter::state, state}, {flow_scatter::surface, surface}});
    p.run();
    double carried = 0, deposited = 0;
    for (std::size_t i = flow::energy; i < p.values(table.flow).size(); i += kFlowColumns) carried += p.values(table.flow)[i];
    for (const double value : p.values(surface)) deposited += value;
    EXPECT_NEAR(deposited, carried, 1e-9);
}

TEST(FlowBeginGradient, IsTheEnergyOfTheRowsThatBegan) {
    RefProgram p;
    constexpr int W = 3, H = 2, B = 2, N = W * H * B + 3;
    const auto e = p.random(1, 1, B, W * H, -1, 1), flow = p.tensor(1, 1, N, kFlowColumns), de = p.tensor(1, 1, B, W * H);
    const auto counts = p.indices(1, kFlowCounters, std::vector<std::int32_t>(kFlowCounters, 7)),
               counters = p.integer_matrix(counts, 1, kFlowCounters);
    const auto dflow = p.tensor(1, 1, N, kFlowColumns, flow_gradient({.samples = B, .width = W, .height = H, .spare = 3}, 21));
    const FlowGridParams grid{W, H};
    p.add(&flow_begin::kDef, grid, {{flow_begin::e, e}, {flow_begin::flow, flow}, {flow_begin::counters, counters}});
    p.add(&flow_begin_backward::kDef, grid, {{flow_begin_backward::dflow, dflow}, {flow_begin_backward::de, de}});
    EXPECT_LT(p.gradient_error(e, de, functional(p, flow, dflow)), kFlowTolerance);
}

}  // namespace
}  // namespace millrace::ops::cases
