#include "models/energy_flow/cube.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/energy_flow/cube_pass.h"
#include "models/energy_flow/ops/flow.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrent/gru.h"

namespace millrace::models {
namespace {

using tape::Init;
using tape::Role;

/// PyTorch's start of a linear layer: both uniform within 1 / sqrt(in).
std::pair<tape::ParameterId, tape::ParameterId> linear(tape::Store& store, const std::string& name, std::int32_t in,
                                                       std::int32_t out) {
    const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(in)));
    const tape::ParameterId weight = store.add_matrix({name + ".weight"}, out, in, init);
    return {weight, store.add_vector({name + ".bias"}, out, init)};
}

void layer_norm(tape::Store& store, const std::string& name, std::int32_t width) {
    store.add_vector({name + ".weight"}, width, Init::value(1));
    store.add_vector({name + ".bias"}, width, Init::value(0));
}

}  // namespace

Cube::Cube(tape::Store& store, const EnergyFlowConfig& config) : config_(config) {
    constexpr std::int32_t kWidth = ops::kNeuronHidden;
    neuron_first_ = linear(store, "neuron.place", 3, 3).first;
    linear(store, "neuron.net.0", 4, kWidth);
    layer_norm(store, "neuron.net.1", kWidth);
    linear(store, "neuron.net.3", kWidth, kWidth);
    layer_norm(store, "neuron.net.4", kWidth);
    neuron_last_ = linear(store, "neuron.net.6", kWidth, ops::kNeuronFeatures).second;
    const auto offset = [&](tape::ParameterId id) { return store.parameters()[static_cast<std::size_t>(id)].offset; };
    for (int i = 0; i < ops::kNeuronTensors; ++i)
        neuron_.offsets[i] = static_cast<std::int32_t>(offset(neuron_first_ + i) - offset(neuron_first_));

    const std::int32_t hidden = config.hidden;
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
        Cell cell;
        cell.in = layer == 0 ? kNeuronWidth : hidden;
        const std::string name = fmt::format("carrier.cells.{}", layer);
        cell.w_ih =
            store.add_matrix({name + ".weight_ih"}, 3 * hidden, cell.in, Init::uniform(std::sqrt(6.0 / (3 * hidden + cell.in))));
        cell.w_hh = store.add_matrix({name + ".weight_hh"}, 3 * hidden, hidden, Init::orthonormal());
        // Update gate open: a slow state at the start.
        cell.b_ih = store.add_vector({name + ".bias_ih"}, 3 * hidden, Init::blocks({0, 1, 0}));
        cell.b_hh = store.add_vector({name + ".bias_hh"}, 3 * hidden, Init::blocks({0, 1, 0}));
        cells_.push_back(cell);
    }
    heads_ = {declare_head(store, "carrier.energy", hidden / 2, 1, 0), declare_head(store, "carrier.move", 64, 3, 1)};
}

Cube::Head Cube::declare_head(tape::Store& store, const std::string& name, std::int32_t width, std::int32_t outputs,
                              std::int32_t first) const {
    Head head;
    std::tie(head.in_weight, head.in_bias) = linear(store, name + ".0", config_.hidden, width);
    head.out_weight = store.add_matrix({name + ".2.weight"}, outputs, width, Init::value(0));
    head.out_bias = store.add_vector({name + ".2.bias"}, outputs, Init::value(0));
    head.width = width;
    head.outputs = outputs;
    head.first = first;
    return head;
}

tape::Value Cube::forward(tape::Builder& builder, const tape::Value& e) {
    auto pass = std::make_shared<Pass>();
    const std::int32_t samples = e.view.rows, hidden = config_.hidden;
    pass->training = builder.training();
    pass->rows = config_.rows(samples);
    pass->steps = config_.step_count();
    pass->e = e;
    pass->recompute = config_.recompute;
    const auto real = [&](std::int32_t windows, std::int32_t cols, std::string name) {
        return builder.buffer(1, windows * pass->rows, cols, builder.real(), Role::saved, std::move(name));
    };
    const auto counters = [&] {
        return builder.buffer(1, 1, ops::kFlowCounters, tensor::DType::i32, Role::saved, "flow counters");
    };
    pass->counters.push_back(counters());
    if (pass->keeps_inputs()) pass->x = real(pass->steps, kInputColumns, "carrier input");
    for (std::int32_t layer = 0; layer < config_.layers; ++layer) {
        pass->h.push_back(real(pass->training ? pass->steps + 1 : 2, hidden, fmt::format("state {}", layer)));
        ops::Record zero{&ops::fill::def, ops::FillParams{0}, {}, 0, "carrier"};
        zero.slots[ops::fill::out] = pass->state_before(static_cast<std::size_t>(layer), 0);
        builder.append(std::move(zero));
    }
    pass->gates.resize(static_cast<std::size_t>(config_.layers));
    pass->scratch = builder.buffer(1, pass->rows, 6 * hidden, builder.stat(), Role::scratch, "products");
    for (std::size_t i = 0; pass->keeps_inputs() && i < heads_.size(); ++i) {
        pass->heads[i].y = real(pass->steps, heads_[i].width, fmt::format("head {}", i));
        pass->heads[i].saved = real(pass->steps, heads_[i].width, fmt::format("head {} before gelu", i));
    }
    const auto table = [&](std::int32_t t) {
        return builder.buffer(1, pass->rows, ops::kFlowColumns, builder.stat(), Role::saved, fmt::format("flows {}", t));
    };
    pass->tables.push_back(table(0));
    ops::Record begin{&ops::flow_begin::def, ops::FlowGridParams{config_.width, config_.height}, {}, 0, "flows"};
    begin.slots[ops::flow_begin::e] = e.view;
    begin.slots[ops::flow_begin::flow] = pass->tables[0];
    begin.slots[ops::flow_begin::counters] = pass->counters[0];
    builder.append(std::move(begin));
    pass->chunks = chunks_of_steps(pass->training ? chunk_steps(builder, *pass) : (pass->steps + 7) / 8);
    for (const auto& [first, end] : pass->chunks) {
        const bool skips = config_.skip_arrived && !every_step_ && first > 0;  // at first everybody is there
        if (skips) builder.only_while(pass->counters[static_cast<std::size_t>(first)]);
        for (std::int32_t t = first; t < end; ++t) {
            pass->tables.push_back(table(t + 1));
            pass->counters.push_back(counters());
            step_forward(builder, *pass, t);
        }
        builder.only_while({});
        for (std::int32_t t = first; t < end && skips; ++t) append_rest(builder, *pass, t);
    }
    pass->surface = {builder.buffer(1, samples, config_.cells(), builder.stat(), Role::activation, "surface"),
                     builder.training()};
    ops::Record lay{&ops::flow_lay::def, ops::FlowGridParams{config_.width, config_.height}, {}, 0, "surface"};
    lay.slots[ops::flow_lay::flow] = pass->tables.back();
    lay.slots[ops::flow_lay::state] = builder.store().state();
    lay.slots[ops::flow_lay::surface] = pass->surface.view;
    builder.append(std::move(lay));
    counters_ = pass->counters.back();
    tables_ = pass->tables;
    moves_ = pass->moved;
    if (builder.training()) register_backward(builder, pass);
    return pass->surface;
}

void Cube::append_neuron(tape::Builder& builder, const Pass& pass, std::int32_t t, const tensor::View& out) const {
    const auto step = static_cast<std::size_t>(t);
    ops::Record neuron{&ops::flow_neuron_forward::def, neuron_, {}, 0, fmt::format("step {} neuron", t)};
    neuron.slots[ops::flow_neuron_forward::flow] = pass.tables[step];
    neuron.slots[ops::flow_neuron_forward::params] = builder.store().parameter_span(neuron_first_, neuron_last_);
    neuron.slots[ops::flow_neuron_forward::counters] = pass.counters[step];
    neuron.slots[ops::flow_neuron_forward::out] = out;
    builder.append(std::move(neuron));
}

void Cube::append_cell(tape::Builder& builder, const Pass& pass, std::size_t layer, std::int32_t t, const tensor::View& x,
                       const tensor::View& gates, const tensor::View& out) const {
    namespace at = ops::gru_forward;
    const tape::Store& store = builder.store();
    const Cell& cell = cells_[layer];
    const std::string name = fmt::format("step {} gru {}", t, layer);
    ops::Record gru{&ops::gru_forward::def, ops::GruParams{}, {}, 0, name};
    gru.slots[at::x] = x;
    gru.slots[at::h] = pass.state_before(layer, t);
    gru.slots[at::flow] = pass.tables[static_cast<std::size_t>(t)];
    gru.slots[at::counters] = pass.counters[static_cast<std::size_t>(t)];
    gru.slots[at::w_ih] = store.weight(cell.w_ih);
    gru.slots[at::w_hh] = store.weight(cell.w_hh);
    gru.slots[at::b_ih] = store.parameter(cell.b_ih);
    gru.slots[at::b_hh] = store.parameter(cell.b_hh);
    gru.slots[at::scratch] = pass.scratch;
    gru.slots[at::gates] = gates;
    gru.slots[at::out] = out;
    builder.append(std::move(gru));
}

void Cube::append_head(tape::Builder& builder, const Pass& pass, std::size_t index, std::int32_t t, const tensor::View& saved,
                       const tensor::View& y) const {
    namespace at = ops::dense_forward;
    const Head& head = heads_[index];
    ops::DenseParams gelu;
    gelu.activation = ops::Activation::gelu;
    ops::Record in{&ops::dense_forward::def, gelu, {}, 0, fmt::format("step {} head {}", t, index)};
    in.slots[at::x] = pass.state_before(cells_.size() - 1, t + 1);
    in.slots[at::w] = builder.store().weight(head.in_weight);
    in.slots[at::bias] = builder.store().parameter(head.in_bias);
    in.slots[at::saved] = saved;
    in.slots[at::y] = y;
    builder.append(std::move(in));
}

void Cube::step_forward(tape::Builder& builder, Pass& pass, std::int32_t t) const {
    tape::Store& store = builder.store();
    const std::string name = fmt::format("step {}", t);
    const auto fresh = [&](std::int32_t cols, Role role, const char* what) {
        return builder.buffer(1, pass.rows, cols, builder.real(), role, fmt::format("{} {}", name, what));
    };
    const tensor::View first =
        pass.keeps_inputs() ? pass.of_step(pass.x, t) : fresh(kInputColumns, Role::activation, "carrier input");
    append_neuron(builder, pass, t, first);
    for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
        tensor::View gates;
        if (pass.keeps_gates()) {
            gates = fresh(4 * config_.hidden, Role::saved, "gates");
            pass.gates[layer].push_back(gates);
        }
        append_cell(builder, pass, layer, t, layer == 0 ? first : pass.state_before(layer - 1, t + 1), gates,
                    pass.state_before(layer, t + 1));
    }
    const tensor::View u = fresh(4, Role::activation, "heads");
    for (std::size_t i = 0; i < heads_.size(); ++i) {
        namespace at = ops::dense_forward;
        const Head& head = heads_[i];
        const bool kept = pass.keeps_inputs();
        const tensor::View y = kept ? pass.of_step(pass.heads[i].y, t) : fresh(head.width, Role::activation, "head");
        append_head(builder, pass, i, t, kept ? pass.of_step(pass.heads[i].saved, t) : tensor::View{}, y);
        ops::Record out{&ops::dense_forward::def, ops::DenseParams{}, {}, 0, fmt::format("{} head {} out", name, i)};
        out.slots[at::x] = y;
        out.slots[at::w] = store.weight(head.out_weight);
        out.slots[at::bias] = store.parameter(head.out_bias);
        out.slots[at::y] = u.columns(head.first, head.outputs);
        builder.append(std::move(out));
    }
    move_and_spawn(builder, pass, t, u);
}

void Cube::move_and_spawn(tape::Builder& builder, Pass& pass, std::int32_t t, const tensor::View& u) const {
    const auto step = static_cast<std::size_t>(t);
    const std::string name = fmt::format("step {}", t);
    ops::FlowMoveParams params;
    params.width = config_.width;
    params.height = config_.height;
    params.drift = static_cast<float>(config_.drift());
    params.noise = pass.training ? static_cast<float>(config_.noise) : 0;
    params.spawn_length = static_cast<float>(config_.spawn_length);
    params.max_spawn = config_.spawns() ? config_.max_spawn : 0;
    params.op_number = builder.next_op_number();
    pass.moved.push_back(builder.buffer(1, pass.rows, ops::kMovedColumns, builder.stat(), Role::saved, name + " moves"));
    ops::Record move{&ops::flow_move::def, params, {}, 0, name + " move"};
    move.slots[ops::flow_move::before] = pass.tables[step];
    move.slots[ops::flow_move::u] = u;
    if (params.noise > 0) move.slots[ops::flow_move::state] = builder.store().state();
    move.slots[ops::flow_move::counters] = pass.counters[step];
    move.slots[ops::flow_move::moved] = pass.moved.back();
    move.slots[ops::flow_move::after] = pass.tables[step + 1];
    builder.append(std::move(move));
    if (config_.spawns()) {
        ops::Record spawn{&ops::flow_spawn::def, ops::FlowSpawnParams{}, {}, 0, name + " spawn"};
        spawn.slots[ops::flow_spawn::before] = pass.tables[step];
        spawn.slots[ops::flow_spawn::flow] = pass.tables[step + 1];
        spawn.slots[ops::flow_spawn::moved] = pass.moved.back();
        spawn.slots[ops::flow_spawn::counters] = pass.counters[step];
        builder.append(std::move(spawn));
        for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
            ops::Record state{&ops::flow_spawn_state::def, ops::FlowSpawnParams{}, {}, 0, name + " spawn"};
            state.slots[ops::flow_spawn_state::flow] = pass.tables[step + 1];
            state.slots[ops::flow_spawn_state::h] = pass.state_before(layer, t + 1);
            builder.append(std::move(state));
        }
    }
    ops::Record counting{&ops::flow_count::def, count_params(t), {}, 0, name + " count"};
    counting.slots[ops::flow_count::flow] = pass.tables[step + 1];
    counting.slots[ops::flow_count::moved] = pass.moved.back();
    counting.slots[ops::flow_count::counters] = pass.counters[step];
    counting.slots[ops::flow_count::next] = pass.counters[step + 1];
    builder.append(std::move(counting));
}

std::vector<std::pair<std::int32_t, std::int32_t>> Cube::chunks_of_steps(std::int32_t length) const {
    const std::int32_t steps = config_.step_count();
    std::vector<std::pair<std::int32_t, std::int32_t>> chunks;
    // Undisturbed flows arrive together: where steps are left out, a border lies there, and the rest is counted off from it.
    const std::int32_t arrival =
        config_.skip_arrived ? std::min(steps, static_cast<std::int32_t>(std::ceil(1 / config_.drift()))) : steps;
    for (std::int32_t end = arrival; end > 0; end -= length) chunks.emplace_back(std::max(0, end - length), end);
    std::reverse(chunks.begin(), chunks.end());
    for (std::int32_t first = arrival; first < steps; first += length)
        chunks.emplace_back(first, std::min(steps, first + length));
    return chunks;
}

ops::FlowCountParams Cube::count_params(std::int32_t t) const {
    ops::FlowCountParams count;
    count.t = t;
    count.min_steps = config_.least_steps();
    count.patience = config_.patience;
    count.stop_at = config_.stop_at;
    count.early_stop = config_.early_stop;
    return count;
}

void Cube::append_rest(tape::Builder& builder, const Pass& pass, std::int32_t t) const {
    namespace at = ops::flow_rest;
    const auto step = static_cast<std::size_t>(t);
    ops::Record rest{&ops::flow_rest::def, count_params(t), {}, 0, fmt::format("step {} rest", t)};
    rest.slots[at::counters] = pass.counters[step];
    rest.slots[at::before] = pass.tables[step];
    rest.slots[at::after] = pass.tables[step + 1];
    rest.slots[at::next] = pass.counters[step + 1];
    builder.append(std::move(rest));
}

}  // namespace millrace::models
