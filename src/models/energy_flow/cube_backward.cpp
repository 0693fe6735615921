#include <fmt/format.h>

#include <algorithm>

#include "models/energy_flow/cube_pass.h"
#include "models/energy_flow/ops/flow.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrent/gru.h"

namespace millrace::models {
namespace {

using tape::Role;
using tensor::View;

void append_dgrad(tape::Builder& builder, const View& dz, const View& w, const View& dx, bool add, const std::string& layer) {
    ops::Record record{&ops::linear_dgrad::def, ops::LinearGradParams{}, {}, add ? 1u << ops::linear_dgrad::dx : 0u, layer};
    record.slots[ops::linear_dgrad::dz] = dz;
    record.slots[ops::linear_dgrad::w] = w;
    record.slots[ops::linear_dgrad::dx] = dx;
    builder.append(std::move(record));
}

void append_wgrad(tape::Builder& builder, const View& dz, const View& x, const View& dw, bool add, const std::string& layer) {
    ops::Record record{&ops::linear_wgrad::def, ops::LinearGradParams{}, {}, add ? 1u << ops::linear_wgrad::dw : 0u, layer};
    record.slots[ops::linear_wgrad::dz] = dz;
    record.slots[ops::linear_wgrad::x] = x;
    record.slots[ops::linear_wgrad::dw] = dw;
    builder.append_weight_gradient(std::move(record));
}

void append_column_sum(tape::Builder& builder, const View& in, const View& out, bool add, const std::string& layer) {
    ops::Record record{&ops::column_sum::def, ops::ColumnSumParams{}, {}, add ? 1u << ops::column_sum::out : 0u, layer};
    record.slots[ops::column_sum::in] = in;
    record.slots[ops::column_sum::out] = out;
    builder.append(std::move(record));
}

}  // namespace

void Cube::register_backward(tape::Builder& builder, const std::shared_ptr<Pass>& pass) const {
    builder.on_backward([this, &builder, pass] {
        pass->waiting.resize(cells_.size());
        for (std::int32_t layer = 0; layer < config_.layers; ++layer) {
            pass->dh.push_back(builder.buffer(1, pass->rows, config_.hidden, builder.stat(), Role::saved,
                                              fmt::format("state gradient {}", layer)));
        }
        pass->dtable = builder.buffer(1, pass->rows, ops::kFlowColumns, builder.stat(), Role::saved, "flow gradient");
        ops::Record lay{&ops::flow_lay_backward::def, ops::FlowGridParams{config_.width, config_.height}, {}, 0, "surface"};
        lay.slots[ops::flow_lay_backward::flow] = pass->tables.back();
        lay.slots[ops::flow_lay_backward::dsurface] = builder.gradient(pass->surface);
        lay.slots[ops::flow_lay_backward::dflow] = pass->dtable;
        builder.append(std::move(lay));
        if (!pass->keeps_gates()) {
            pass->scratch = builder.buffer(1, pass->rows, 6 * config_.hidden, builder.stat(), Role::scratch, "products");
            pass->gates_again =
                builder.buffer(1, pass->rows, 4 * config_.hidden, builder.real(), Role::activation, "gates again");
            pass->state_again = builder.buffer(1, pass->rows, config_.hidden, builder.real(), Role::scratch, "state again");
        }
        if (config_.skip_arrived) begin_sums(builder, *pass);
        for (auto chunk = pass->chunks.rbegin(); chunk != pass->chunks.rend(); ++chunk) {
            const auto [first, end] = *chunk;
            begin_chunk(builder, *pass, first, end - first);
            const bool skips = config_.skip_arrived && first > 0;
            if (skips) builder.only_while(pass->counters[static_cast<std::size_t>(first)]);
            std::vector<View> dtables{pass->dtable};
            for (std::int32_t t = end - 1; t >= first; --t) {
                step_backward(builder, *pass, t);
                dtables.push_back(pass->dtable);
            }
            weight_gradients(builder, *pass);
            // The last chunk's may wait for those of other layers; the others' buffers are needed again.
            if (first > 0) builder.flush_weight_gradients();
            builder.only_while({});
            if (!skips) continue;
            const std::int32_t earlier = std::next(chunk)->first;
            append_rest_backward(builder, *pass, dtables,
                                 earlier > 0 ? pass->counters[static_cast<std::size_t>(earlier)] : View{});
        }
        const tape::Builder::Target target = builder.gradient_target(pass->e);
        MILLRACE_ASSERT(!target.accumulate, "the energies have a second reader");
        ops::Record begin{&ops::flow_begin_backward::def, ops::FlowGridParams{config_.width, config_.height}, {}, 0, "flows"};
        begin.slots[ops::flow_begin_backward::dflow] = pass->dtable;
        begin.slots[ops::flow_begin_backward::de] = target.view;
        builder.append(std::move(begin));
    });
}

void Cube::begin_sums(tape::Builder& builder, const Pass& pass) const {
    const auto zero = [&](const View& view) {
        ops::Record record{&ops::fill::def, ops::FillParams{0}, {}, 0, "carrier"};
        record.slots[ops::fill::out] = view;
        builder.append(std::move(record));
    };
    for (const View& dh : pass.dh) zero(dh);
    const tape::ParameterId last = heads_.back().out_bias;
    if (!builder.parameter_gradient(neuron_first_).accumulate) zero(builder.store().gradient_span(neuron_first_, last));
    for (tape::ParameterId id = neuron_first_ + 1; id <= last; ++id) (void)builder.parameter_gradient(id);  // begun: others add
}

void Cube::append_rest_backward(tape::Builder& builder, Pass& pass, const std::vector<View>& dtables, const View& earlier) const {
    const std::int32_t first = pass.chunk.first;
    const auto name = [](std::int32_t t) { return fmt::format("step {} rest", t); };
    for (std::int32_t t = first + pass.chunk.count - 1; t >= first; --t) {
        const auto done = static_cast<std::size_t>(first + pass.chunk.count - 1 - t);
        ops::Record rest{&ops::flow_rest_backward::def, ops::FlowRestParams{}, {}, 0, name(t)};
        rest.slots[ops::flow_rest_backward::counters] = pass.counters[static_cast<std::size_t>(t)];
        rest.slots[ops::flow_rest_backward::dafter] = dtables[done];
        rest.slots[ops::flow_rest_backward::dbefore] = dtables[done + 1];
        builder.append(std::move(rest));
    }
    // A chunk that was left out wrote nothing, but the chunk before it, if done, reads the gate gradients that wait: also for
    // members whose flows arrived long ago, whose states' gradients pass through. Hence its condition, and in it everybody.
    namespace at = ops::flow_clear;
    constexpr std::size_t kOuts = at::slots - at::out0;
    for (std::size_t begin = 0; begin < cells_.size() && !pass.waiting[0].empty(); begin += kOuts) {
        ops::Record clear{&ops::flow_clear::def, ops::FlowRestParams{}, {}, 0, name(first)};
        clear.slots[at::counters] = pass.counters[static_cast<std::size_t>(first)];
        clear.slots[at::earlier] = pass.counters[0];
        clear.slots[ops::kWhile] = earlier;
        for (std::size_t i = 0; i < std::min(kOuts, cells_.size() - begin); ++i)
            clear.slots[at::out0 + i] = pass.of_chunk(pass.chunk.dgates[begin + i], first);
        builder.append(std::move(clear));
    }
}

std::int32_t Cube::chunk_steps(const tape::Builder& builder, const Pass& pass) const {
    const std::int64_t step = std::int64_t{pass.rows} * 4 * config_.hidden * config_.layers *
                              static_cast<std::int64_t>(tensor::size_of(builder.real())) * builder.store().members();
    constexpr std::int64_t kBudget = std::int64_t{4} << 30;
    const bool automatic = config_.gradient_budget == 0;
    const std::int64_t held = (automatic ? kBudget : config_.gradient_budget) / std::max<std::int64_t>(step, 1);
    const std::int32_t limit = automatic && config_.recompute != Recompute::none ? (pass.steps + 3) / 4 : pass.steps;
    std::int64_t most = std::clamp<std::int64_t>(held, 1, limit);
    if (config_.skip_arrived) {
        // A chunk is left out as a whole: eighths of the steps, unless that leaves products too small to be worth it.
        constexpr std::int64_t kWork = std::int64_t{10} << 30;
        const std::int64_t flops = std::int64_t{12} * pass.rows * config_.hidden * config_.hidden * config_.layers;
        most = std::min(most, std::max<std::int64_t>((pass.steps + 7) / 8, kWork / std::max<std::int64_t>(flops, 1)));
    }
    const std::int64_t chunks = (pass.steps + most - 1) / most;  // of equal length, as far as that goes
    return static_cast<std::int32_t>((pass.steps + chunks - 1) / chunks);
}

void Cube::begin_chunk(tape::Builder& builder, Pass& pass, std::int32_t first, std::int32_t count) const {
    const auto windows = [&](std::int32_t cols, std::string name) {
        return builder.buffer(1, count * pass.rows, cols, builder.real(), Role::saved, std::move(name));
    };
    pass.chunk = {};
    pass.chunk.first = first;
    pass.chunk.count = count;
    for (std::int32_t layer = 0; layer < config_.layers; ++layer)
        pass.chunk.dgates.push_back(windows(4 * config_.hidden, fmt::format("gate gradients {}", layer)));
    pass.chunk.du = windows(4, "head gradients");
    pass.chunk.x = pass.keeps_inputs() ? pass.chunk_of(pass.x) : windows(kInputColumns, "carrier input");
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        pass.chunk.dz[i] = windows(heads_[i].width, fmt::format("head {} gradient", i));
        pass.chunk.y[i] =
            pass.keeps_inputs() ? pass.chunk_of(pass.heads[i].y) : windows(heads_[i].width, fmt::format("head {}", i));
    }
}

void Cube::step_backward(tape::Builder& builder, Pass& pass, std::int32_t t) const {
    const auto step = static_cast<std::size_t>(t);
    const std::string name = fmt::format("step {}", t);
    const View before = builder.buffer(1, pass.rows, ops::kFlowColumns, builder.stat(), Role::saved, "flow gradient");
    if (config_.spawns()) {
        ops::Record spawn{&ops::flow_spawn_backward::def, ops::FlowSpawnParams{}, {}, 0, name + " spawn"};
        spawn.slots[ops::flow_spawn_backward::moved] = pass.moved[step];
        spawn.slots[ops::flow_spawn_backward::dafter] = pass.dtable;
        spawn.slots[ops::flow_spawn_backward::dbefore] = before;
        builder.append(std::move(spawn));
        for (const View& dh : pass.dh) {
            if (t + 1 == pass.steps && !config_.skip_arrived) break;  // nothing has reached the states yet
            ops::Record state{&ops::flow_spawn_state_backward::def, ops::FlowSpawnParams{}, {}, 0, name + " spawn"};
            state.slots[ops::flow_spawn_state_backward::moved] = pass.moved[step];
            state.slots[ops::flow_spawn_state_backward::dh] = dh;
            builder.append(std::move(state));
        }
    }
    ops::FlowMoveParams params;
    params.width = config_.width;
    params.height = config_.height;
    ops::Record move{&ops::flow_move_backward::def,
                     params,
                     {},
                     config_.spawns() ? 1u << ops::flow_move_backward::dbefore : 0u,
                     name + " move"};
    move.slots[ops::flow_move_backward::dafter] = pass.dtable;
    move.slots[ops::flow_move_backward::moved] = pass.moved[step];
    move.slots[ops::flow_move_backward::du] = pass.of_chunk(pass.chunk.du, t);
    move.slots[ops::flow_move_backward::dbefore] = before;
    builder.append(std::move(move));
    if (!pass.keeps_inputs()) append_neuron(builder, pass, t, pass.of_chunk(pass.chunk.x, t));
    heads_backward(builder, pass, t);
    for (std::size_t layer = cells_.size(); layer-- > 0;) cell_backward(builder, pass, layer, t);

    ops::Record neuron{&ops::flow_neuron_backward::def, neuron_, {}, 1u << ops::flow_neuron_backward::dflow, name + " neuron"};
    // The last step comes first: it overwrites unless an earlier micro-batch left something.
    if (t + 1 < pass.steps || config_.skip_arrived || builder.parameter_gradient(neuron_first_).accumulate)
        neuron.accumulate |= 1u << ops::flow_neuron_backward::dparams;
    neuron.slots[ops::flow_neuron_backward::flow] = pass.tables[step];
    neuron.slots[ops::flow_neuron_backward::params] = builder.store().parameter_span(neuron_first_, neuron_last_);
    neuron.slots[ops::flow_neuron_backward::counters] = pass.counters[step];
    neuron.slots[ops::flow_neuron_backward::dout] = pass.dx;
    neuron.slots[ops::flow_neuron_backward::dparams] = builder.store().gradient_span(neuron_first_, neuron_last_);
    neuron.slots[ops::flow_neuron_backward::dflow] = before;
    builder.append(std::move(neuron));
    pass.dtable = before;
}

void Cube::heads_backward(tape::Builder& builder, Pass& pass, std::int32_t t) const {
    tape::Store& store = builder.store();
    const auto name = [t](std::size_t index) { return fmt::format("step {} head {}", t, index); };
    std::array<View, 2> saved;
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        if (pass.keeps_inputs()) {
            saved[i] = pass.of_step(pass.heads[i].saved, t);
        } else {
            saved[i] = builder.buffer(1, pass.rows, heads_[i].width, builder.real(), Role::activation, name(i) + " before gelu");
            append_head(builder, pass, i, t, saved[i], pass.of_chunk(pass.chunk.y[i], t));
        }
    }
    // The heads' element-wise parts side by side, so that a backend can take them together.
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        namespace at = ops::dense_backward;
        const Head& head = heads_[i];
        const View dz = pass.of_chunk(pass.chunk.dz[i], t);
        append_dgrad(builder, pass.of_chunk(pass.chunk.du, t).columns(head.first, head.outputs), store.weight(head.out_weight),
                     dz, false, name(i));
        ops::DenseParams gelu;
        gelu.activation = ops::Activation::gelu;
        ops::Record back{&ops::dense_backward::def, gelu, {}, 0, name(i)};
        back.slots[at::dy] = dz;
        back.slots[at::saved] = saved[i];
        back.slots[at::dz] = dz;
        builder.append(std::move(back));
    }
    for (std::size_t i = 0; i < heads_.size(); ++i)
        pass.reach_dh.emplace_back(pass.of_chunk(pass.chunk.dz[i], t), store.weight(heads_[i].in_weight));
}

void Cube::cell_backward(tape::Builder& builder, Pass& pass, std::size_t layer, std::int32_t t) const {
    namespace at = ops::gru_backward;
    tape::Store& store = builder.store();
    const Cell& cell = cells_[layer];
    const std::int32_t hidden = config_.hidden;
    const std::string name = fmt::format("step {} gru {}", t, layer);
    const View dgates = pass.of_chunk(pass.chunk.dgates[layer], t), w_hh = store.weight(cell.w_hh);
    View gates;
    if (pass.keeps_gates()) {
        gates = pass.gates[layer][static_cast<std::size_t>(t)];
    } else {
        gates = pass.gates_again;
        append_cell(builder, pass, layer, t, layer == 0 ? pass.of_chunk(pass.chunk.x, t) : pass.state_before(layer - 1, t + 1),
                    gates, pass.state_again);
    }
    ops::Record gru{&ops::gru_backward::def, ops::GruBackwardParams{t + 1 == pass.steps && !config_.skip_arrived}, {}, 0, name};
    gru.slots[at::dh] = pass.dh[layer];
    gru.slots[at::gates] = gates;
    gru.slots[at::h] = pass.state_before(layer, t);
    gru.slots[at::flow] = pass.tables[static_cast<std::size_t>(t)];
    gru.slots[at::counters] = pass.counters[static_cast<std::size_t>(t)];
    gru.slots[at::dgates] = dgates;
    Pass::Pairs& waiting = pass.waiting[layer];  // from the step after this one
    waiting.insert(waiting.begin(), pass.reach_dh.begin(), pass.reach_dh.end());
    MILLRACE_ASSERT(waiting.size() <= ops::kGruPairs, "more reaches a state than one operator takes");
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        gru.slots[static_cast<std::size_t>(at::a0) + 2 * i] = waiting[i].first;
        gru.slots[static_cast<std::size_t>(at::w0) + 2 * i] = waiting[i].second;
    }
    builder.append(std::move(gru));
    waiting.clear();
    if (t > 0) {  // the state before the first step is zero for everybody
        waiting.emplace_back(dgates.columns(0, 2 * hidden), rows_of(w_hh, 0, 2 * hidden));
        waiting.emplace_back(dgates.columns(3 * hidden, hidden), rows_of(w_hh, 2 * hidden, hidden));
        // Spawning reads the states' gradients first, and the next chunk of several steps takes the memory of this one's.
        if (config_.spawns() || (t == pass.chunk.first && !config_.skip_arrived)) {
            for (const auto& [dz, w] : waiting) append_dgrad(builder, dz, w, pass.dh[layer], true, name);
            waiting.clear();
        }
    }
    const View gates_in = dgates.columns(0, 3 * hidden);
    pass.reach_dh.clear();
    if (layer > 0) {
        pass.reach_dh.emplace_back(gates_in, store.weight(cell.w_ih));
        return;
    }
    pass.dx =
        builder.buffer(1, pass.rows, kInputColumns, builder.real(), Role::activation, fmt::format("step {} input gradient", t));
    append_dgrad(builder, gates_in, store.weight(cell.w_ih), pass.dx, false, name);
}

void Cube::weight_gradients(tape::Builder& builder, Pass& pass) const {
    const std::int32_t hidden = config_.hidden;
    for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
        const Cell& cell = cells_[layer];
        const std::string name = fmt::format("gru {}", layer);
        const View dgates = pass.chunk.dgates[layer], before = pass.chunk_of(pass.h[layer]);
        const View x = layer == 0 ? pass.chunk.x : pass.chunk_of(pass.h[layer - 1], 1);
        const auto w_ih = builder.parameter_gradient(cell.w_ih), w_hh = builder.parameter_gradient(cell.w_hh);
        const auto b_ih = builder.parameter_gradient(cell.b_ih), b_hh = builder.parameter_gradient(cell.b_hh);
        append_wgrad(builder, dgates.columns(0, 3 * hidden), x, w_ih.view, w_ih.accumulate, name);
        append_wgrad(builder, dgates.columns(0, 2 * hidden), before, rows_of(w_hh.view, 0, 2 * hidden), w_hh.accumulate, name);
        append_wgrad(builder, dgates.columns(3 * hidden, hidden), before, rows_of(w_hh.view, 2 * hidden, hidden), w_hh.accumulate,
                     name);
        append_column_sum(builder, dgates.columns(0, 3 * hidden), b_ih.view, b_ih.accumulate, name);
        append_column_sum(builder, dgates.columns(0, 2 * hidden), b_hh.view.columns(0, 2 * hidden), b_hh.accumulate, name);
        append_column_sum(builder, dgates.columns(3 * hidden, hidden), b_hh.view.columns(2 * hidden, hidden), b_hh.accumulate,
                          name);
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        const Head& head = heads_[i];
        const std::string name = fmt::format("head {}", i);
        const View dz = pass.chunk.dz[i], du = pass.chunk.du.columns(head.first, head.outputs);
        const auto in_weight = builder.parameter_gradient(head.in_weight), in_bias = builder.parameter_gradient(head.in_bias);
        const auto out_weight = builder.parameter_gradient(head.out_weight);
        append_wgrad(builder, dz, pass.chunk_of(pass.h.back(), 1), in_weight.view, in_weight.accumulate, name);
        append_column_sum(builder, dz, in_bias.view, in_bias.accumulate, name);
        append_wgrad(builder, du, pass.chunk.y[i], out_weight.view, out_weight.accumulate, name);
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        const auto out_bias = builder.parameter_gradient(heads_[i].out_bias);
        append_column_sum(builder, pass.chunk.du.columns(heads_[i].first, heads_[i].outputs), out_bias.view, out_bias.accumulate,
                          fmt::format("head {}", i));
    }
}

}  // namespace millrace::models
