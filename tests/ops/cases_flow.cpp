// One step of the flows: moving, spawning, counting.

#include <cmath>

#include <fmt/format.h>

#include "base/philox.h"
#include "flow_table.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::ops::cases {
namespace {

constexpr double kExact = 2e-6;  ///< nothing of these operators is rounded to real, except where the slot is

struct Move {
    FlowSpec spec;
    FlowMoveParams params;
    std::string note;
};

/// Whether rounding could decide where row `row` goes: a wall, a plane or a number of children is too near.
bool undecided(const Move& move, const MemberState& state, int row, const double* flow, const double* u) {
    constexpr double kMargin = 1e-3;
    double raw[3], squares = 0;
    for (int i = 0; i < 3; ++i) raw[i] = flow[i] + 0.5 * std::tanh(u[1 + i]);
    raw[2] += flow[flow::heading] * static_cast<double>(move.params.drift);
    for (int i = 0; i < 2; ++i) {
        const double cell = 2.0 / ((i == 0 ? move.params.width : move.params.height) - 1);
        if (move.params.noise > 0)
            raw[i] +=
                static_cast<double>(move.params.noise) * cell *
                static_cast<double>(base::random_normal(state.seed, state.step, state.micro, move.params.op_number,
                                                        2 * static_cast<std::uint64_t>(row) + static_cast<std::uint64_t>(i)));
        if (std::fabs(std::remainder(raw[i] - 1, 2)) < kMargin) return true;
        const double folded = 1 - std::fabs(std::remainder(raw[i] - 1, 4));
        squares += (folded - flow[i]) * (folded - flow[i]);
    }
    const double z = std::fmax(-1, std::fmin(1, raw[2]));
    squares += (z - flow[2]) * (z - flow[2]);
    const double children = std::sqrt(squares) / static_cast<double>(move.params.spawn_length);
    return std::fabs(std::fabs(raw[2]) - 1) < kMargin ||
           (move.params.max_spawn > 0 && std::fabs(children - std::nearbyint(children)) < kMargin);
}

OpCase moving(const Move& move) {
    namespace at = flow_move;
    OpCase c;
    c.name = fmt::format("flow_move/{}/{}", move.note, move.spec.text());
    c.op = &flow_move::kDef;
    c.params = move.params;
    const int k = c.members = move.spec.k, n = move.spec.rows();
    c.f32_tolerance = c.bf16_tolerance = move.params.noise > 0 ? 2e-5 : kExact;
    c.states = sample_states(k);
    const std::vector<double> before = flow_values(move.spec, 4);
    std::vector<double> heads;
    for (int m = 0; m < k; ++m)
        for (int row = 0; row < n; ++row) {
            const double* flow = before.data() + (static_cast<std::ptrdiff_t>(m) * n + row) * kFlowColumns;
            double u[4];
            std::uint32_t attempt = 0;
            do {
                for (std::uint32_t i = 0; i < 4; ++i)
                    u[i] = tensor::from_bf16(tensor::to_bf16(static_cast<float>(number(
                        500 + 4 * attempt + i, static_cast<std::size_t>(m) * 10000 + static_cast<std::size_t>(row), -2.5, 2.5))));
            } while (undecided(move, c.states[static_cast<std::size_t>(m)], row, flow, u) && ++attempt < 100);
            heads.insert(heads.end(), u, u + 4);
        }
    c.slot(at::before, Element::stat, k, 1, n, kFlowColumns, given(before));
    c.slot(at::u, Element::real, k, 1, n, 4, given(heads));
    if (move.params.noise > 0)
        c.state(at::state);
    else
        c.states.clear();
    c.slot(at::counters, Element::i32, k, 1, 1, kFlowCounters, given(counter_values(move.spec)));
    c.slot(at::moved, Element::stat, k, 1, n, kMovedColumns, poison());
    return c.slot(at::after, Element::stat, k, 1, n, kFlowColumns, poison());
}

OpCase moving_back(const FlowSpec& spec, bool adding) {
    namespace at = flow_move_backward;
    OpCase c;
    c.name = fmt::format("flow_move_backward/{}/{}", adding ? "adding" : "written", spec.text());
    c.op = &flow_move_backward::kDef;
    c.params = FlowMoveParams{};
    const int k = c.members = spec.k, n = spec.rows();
    c.f32_tolerance = kExact;
    c.slot(at::dafter, Element::stat, k, 1, n, kFlowColumns, given(flow_gradient(spec, 5)));
    c.slot(at::moved, Element::stat, k, 1, n, kMovedColumns, given(moved_values(spec, 6, 0)));
    c.slot(at::du, Element::real, k, 1, n, 4, poison());
    c.slot(at::dbefore, Element::stat, k, 1, n, kFlowColumns, adding ? given(flow_gradient(spec, 7)) : poison());
    return adding ? c.accumulates(at::dbefore) : c;
}

void add_spawning(std::vector<OpCase>& cases, const FlowSpec& spec, int max_spawn, int hidden) {
    const int k = spec.k, n = spec.rows();
    const std::string name = fmt::format("max{}_H{}/{}", max_spawn, hidden, spec.text());
    std::vector<double> moved = moved_values(spec, 8, max_spawn), after = flow_values(spec, 9);
    const auto start = [&](const OpDef* op, const std::string& title) {
        OpCase c;
        c.name = title + "/" + name;
        c.op = op;
        c.params = FlowSpawnParams{};
        c.members = k;
        c.f32_tolerance = c.bf16_tolerance = kExact;
        return c;
    };
    OpCase c = start(&flow_spawn::kDef, "flow_spawn");
    c.slot(flow_spawn::before, Element::stat, k, 1, n, kFlowColumns, given(flow_values(spec, 10)));
    c.slot(flow_spawn::flow, Element::stat, k, 1, n, kFlowColumns, given(after));
    c.slot(flow_spawn::moved, Element::stat, k, 1, n, kMovedColumns, given(moved));
    c.slot(flow_spawn::counters, Element::i32, k, 1, 1, kFlowCounters, given(counter_values(spec)));
    cases.push_back(c);

    admit(spec, moved, after);
    c = start(&flow_spawn_state::kDef, "flow_spawn_state");
    c.slot(flow_spawn_state::flow, Element::stat, k, 1, n, kFlowColumns, given(after));
    c.slot(flow_spawn_state::h, Element::real, k, 1, n, hidden, uniform(-1, 1));
    cases.push_back(c);

    for (const bool adding : {false, true}) {
        c = start(&flow_spawn_backward::kDef, adding ? "flow_spawn_backward/adding" : "flow_spawn_backward/written");
        c.slot(flow_spawn_backward::moved, Element::stat, k, 1, n, kMovedColumns, given(moved));
        c.slot(flow_spawn_backward::dafter, Element::stat, k, 1, n, kFlowColumns, given(flow_gradient(spec, 11)));
        c.slot(flow_spawn_backward::dbefore, Element::stat, k, 1, n, kFlowColumns,
               adding ? given(flow_gradient(spec, 12)) : poison());
        if (adding) c.accumulates(flow_spawn_backward::dbefore);
        cases.push_back(c);
    }

    c = start(&flow_spawn_state_backward::kDef, "flow_spawn_state_backward");
    c.slot(flow_spawn_state_backward::moved, Element::stat, k, 1, n, kMovedColumns, given(moved));
    c.slot(flow_spawn_state_backward::dh, Element::stat, k, 1, n, hidden, uniform(-1, 1));
    cases.push_back(c);
}

/// Six members whose stop rules stand at different points; one has stopped.
OpCase counting(const std::string& note, FlowSpec spec, const FlowCountParams& params) {
    namespace at = flow_count;
    OpCase c;
    spec.k = c.members = 6;
    spec.stopped = 4;
    c.name = fmt::format("flow_count/{}/{}", note, spec.text());
    c.op = &flow_count::kDef;
    c.params = params;
    std::vector<double> counters = counter_values(spec);
    const int most[] = {0, 1, spec.used() / 2, spec.used(), 3, spec.used()}, waited[] = {0, 2, 1, 1, 0, 2};
    for (std::size_t m = 0; m < 6; ++m) {
        counters[m * kFlowCounters + flow_counter::most] = most[m];
        counters[m * kFlowCounters + flow_counter::waited] = waited[m];
    }
    c.slot(at::flow, Element::stat, spec.k, 1, spec.rows(), kFlowColumns, given(flow_values(spec, 13)));
    c.slot(at::moved, Element::stat, spec.k, 1, spec.rows(), kMovedColumns, given(moved_values(spec, 14, 2)));
    c.slot(at::counters, Element::i32, spec.k, 1, 1, kFlowCounters, given(counters));
    return c.slot(at::next, Element::i32, spec.k, 1, 1, kFlowCounters, constant(-7));
}

/// Five members: flows alive, all arrived, all arrived a while ago, stopped with flows alive, no flows at all.
std::vector<double> resting_counters(const FlowSpec& spec) {
    std::vector<double> counters = counter_values(spec);
    const int used = spec.used();
    const int up[] = {used / 3, used, used / 2, 1, 0}, down[] = {0, 0, used - used / 2, 0, 0}, waited[] = {1, 0, 2, 0, 0};
    for (std::size_t m = 0; m < 5; ++m) {
        double* one = counters.data() + m * kFlowCounters;
        one[flow_counter::arrived_up] = up[m];
        one[flow_counter::arrived_down] = down[m];
        one[flow_counter::most] = up[m] + down[m];
        one[flow_counter::waited] = waited[m];
        if (m == 4) one[flow_counter::used] = 0;
        one[flow_counter::alive] = m == 0 && used > up[m] ? 1 : 0;
    }
    return counters;
}

void add_resting(std::vector<OpCase>& cases, FlowSpec spec, const FlowCountParams& params) {
    spec.k = 5;
    spec.stopped = 3;
    const auto counters = given(resting_counters(spec));
    const auto named = [&](const char* op, const OpDef* id, auto with) {
        OpCase c;
        c.name = fmt::format("{}/{}{}", op, params.early_stop ? "rule_" : "", spec.text());
        c.op = id;
        c.params = with;
        c.members = spec.k;
        return c;
    };
    OpCase skip = named("flow_skip", &flow_skip::kDef, params);
    skip.slot(flow_skip::counters, Element::i32, spec.k, 1, 1, kFlowCounters, counters);
    skip.slot(flow_skip::before, Element::stat, spec.k, 1, spec.rows(), kFlowColumns, given(flow_values(spec, 21)));
    skip.slot(flow_skip::after, Element::stat, spec.k, 1, spec.rows(), kFlowColumns, given(flow_values(spec, 22)));
    cases.push_back(skip.slot(flow_skip::next, Element::i32, spec.k, 1, 1, kFlowCounters, constant(-7)));
    OpCase back = named("flow_skip_backward", &flow_skip_backward::kDef, FlowSkipParams{});
    back.slot(flow_skip_backward::counters, Element::i32, spec.k, 1, 1, kFlowCounters, counters);
    back.slot(flow_skip_backward::dafter, Element::stat, spec.k, 1, spec.rows(), kFlowColumns, given(flow_gradient(spec, 23)));
    cases.push_back(back.slot(flow_skip_backward::dbefore, Element::stat, spec.k, 1, spec.rows(), kFlowColumns, uniform(-1, 1)));
    for (const Element element : {Element::real, Element::stat}) {
        OpCase clear = named("flow_clear", &flow_clear::kDef, FlowSkipParams{});
        clear.name += element == Element::real ? "/real" : "/stat";
        std::vector<double> earlier = counter_values(spec);  // alive but for the stopped one
        clear.slot(flow_clear::counters, Element::i32, spec.k, 1, 1, kFlowCounters, counters);
        clear.slot(flow_clear::earlier, Element::i32, spec.k, 1, 1, kFlowCounters, given(earlier));
        clear.slot(flow_clear::out0, element, spec.k, 1, spec.rows(), 37, uniform(-1, 1));
        clear.slot(flow_clear::out0 + 1, Element::real, spec.k, 1, spec.rows() + 3, 16, uniform(-1, 1));
        cases.push_back(clear.slot(flow_clear::out0 + 2, Element::stat, spec.k, 1, 2, 5, uniform(-1, 1), {0, 8, false, false}));
    }
}

}  // namespace

void add_flow_cases(std::vector<OpCase>& cases) {
    const FlowSpec small{.k = 2, .samples = 2, .width = 5, .height = 3};
    const FlowSpec spare{.k = 3, .samples = 2, .width = 7, .height = 5, .spare = 23, .taken = 6, .stopped = 1};
    const FlowSpec large{.samples = 3, .width = 19, .height = 17, .spare = 40, .taken = 11, .alive = 0.9};
    const FlowSpec dead{.samples = 1, .width = 3, .height = 2, .alive = 0};
    const FlowSpec tiny{.k = 2, .samples = 1, .width = 2, .height = 2, .alive = 1};
    for (const FlowSpec& spec : {small, spare, large, dead, tiny}) {
        FlowMoveParams params{.width = spec.width, .height = spec.height, .drift = 0.4f, .spawn_length = 0.25f, .op_number = 29};
        cases.push_back(moving({spec, params, "quiet"}));
        params.max_spawn = 3;
        cases.push_back(moving({spec, params, "spawning"}));
        params.noise = 0.1f;
        cases.push_back(moving({spec, params, "noise"}));
        params.noise = 3;  // mirrored several times
        cases.push_back(moving({spec, params, "storm"}));
        for (const bool adding : {false, true}) cases.push_back(moving_back(spec, adding));
    }
    add_spawning(cases, spare, 1, 5);
    add_spawning(cases, spare, 3, 64);  // more wanted than there is room for
    add_spawning(cases, large, 1, 17);
    add_spawning(cases, {.samples = 1, .width = 50, .height = 40, .spare = 5000, .taken = 1}, 4, 3);
    add_spawning(cases, {.k = 2, .samples = 2, .width = 4, .height = 4, .spare = 7, .taken = 7, .alive = 1}, 2, 3);  // full
    add_spawning(cases, {.samples = 1, .width = 4, .height = 4, .spare = 3, .alive = 0}, 2, 3);

    const FlowCountParams running{.t = 2, .min_steps = 2, .patience = 3, .stop_at = 0.25, .early_stop = true};
    add_resting(cases, spare, running);
    add_resting(cases, {.samples = 1, .width = 3, .height = 2}, {.t = 7});
    FlowCountParams other = running;
    cases.push_back(counting("stops", spare, running));
    cases.push_back(counting("stops", large, running));
    other.stop_at = 2;
    cases.push_back(counting("patience", spare, other));
    other.t = 0;
    cases.push_back(counting("too_early", spare, other));
    other.early_stop = false;
    cases.push_back(counting("no_stop", small, other));
    cases.push_back(counting("none_arrived", tiny, running));
    cases.push_back(counting("all_arrived", dead, running));
}

}  // namespace millrace::ops::cases
