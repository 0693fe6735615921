#include "models/energy_flow/cube.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/energy_flow/ops/flow.h"
#include "nn/slot_target.h"

namespace millrace::models {
namespace {

using nn::record_of;
using tape::Init;
using tape::Role;
using tape::Value;
using tensor::View;

constexpr std::int32_t kNeuronWidth = ops::kNeuronFeatures + 1;  ///< features and energy
constexpr std::int32_t kInputColumns = 72;  ///< the same with room to the next multiple of eight: rows of 16-byte
                                            ///< steps

/// PyTorch's start of a linear layer: both uniform within 1 / sqrt(in).
Init linear_init(std::int32_t in) { return Init::uniform(1 / std::sqrt(static_cast<double>(in))); }

std::pair<tape::ParameterId, tape::ParameterId> add_linear(tape::Store& store, const std::string& name, std::int32_t in,
                                                           std::int32_t out) {
    const tape::ParameterId weight = store.add_matrix({name + ".weight"}, out, in, linear_init(in));
    return {weight, store.add_vector({name + ".bias"}, out, linear_init(in))};
}

void layer_norm(tape::Store& store, const std::string& name, std::int32_t width) {
    store.add_vector({name + ".weight"}, width, Init::value(1));
    store.add_vector({name + ".bias"}, width, Init::value(0));
}

}  // namespace

/// One way through the cube.
struct Cube::Pass {
    std::int32_t rows = 0;       ///< N
    std::vector<View> counters;  ///< T + 1: before each step and after the last
    std::vector<Value> tables;   ///< T + 1 of stat [K,1,N,8]
    std::vector<View> moved;     ///< T of stat [K,1,N,8]
    std::vector<tape::Scan::State> states;
    View scratch;
};

Cube::Cube(tape::Store& store, const EnergyFlowConfig& config) : config_(config) {
    constexpr std::int32_t kWidth = ops::kNeuronHidden;
    neuron_first_ = add_linear(store, "neuron.place", 3, 3).first;
    add_linear(store, "neuron.net.0", 4, kWidth);
    layer_norm(store, "neuron.net.1", kWidth);
    add_linear(store, "neuron.net.3", kWidth, kWidth);
    layer_norm(store, "neuron.net.4", kWidth);
    neuron_last_ = add_linear(store, "neuron.net.6", kWidth, ops::kNeuronFeatures).second;
    const auto offset = [&](tape::ParameterId id) { return store.parameters()[static_cast<std::size_t>(id)].offset; };
    for (int i = 0; i < ops::kNeuronTensors; ++i)
        neuron_.offsets[i] = static_cast<std::int32_t>(offset(neuron_first_ + i) - offset(neuron_first_));
    for (std::int32_t layer = 0; layer < config.layers; ++layer)
        cells_.emplace_back(store, fmt::format("carrier.cells.{}", layer), layer == 0 ? kNeuronWidth : config.hidden,
                            config.hidden);
    const auto head = [&](const std::string& name, std::int32_t width, std::int32_t outputs, std::int32_t first) {
        nn::DenseOptions in = nn::linear(config.hidden, width, ops::Activation::gelu);
        in.bias_init = linear_init(config.hidden);
        const nn::DenseOptions out = nn::linear(width, outputs, ops::Activation::none, Init::value(0));
        const nn::Dense first_layer(store, {name + ".0"}, {}, in);
        return Head{first_layer, nn::Dense(store, {name + ".2"}, {}, out), first, outputs};
    };
    heads_[0] = head("carrier.energy", config.hidden / 2, 1, 0);
    heads_[1] = head("carrier.move", 64, 3, 1);
    last_ = static_cast<tape::ParameterId>(store.parameters().size()) - 1;
}

Value Cube::forward(tape::Builder& builder, const Value& e) {
    if (config_.spawns()) builder.couple_rows("spare rows that the flows of a batch share (model.headroom)");
    if (config_.early_stop) builder.couple_rows("a stop that waits for the flows of a batch (model.early_stop)");
    const auto pass = std::make_shared<Pass>();
    pass->rows = config_.rows(e.view.rows);
    const auto table = [&](const std::string& name) {
        return Value{builder.buffer(1, pass->rows, ops::kFlowColumns, builder.stat(), Role::saved, name), builder.training()};
    };
    for (std::int32_t t = 0; t <= config_.step_count(); ++t) {
        pass->counters.push_back(builder.buffer(1, 1, ops::kFlowCounters, tensor::DType::i32, Role::saved, "flow counters"));
        pass->tables.push_back(table(fmt::format("flows {}", t)));
    }
    const auto scan = make_scan(builder, pass);
    for (std::int32_t layer = 0; layer < config_.layers; ++layer)
        pass->states.push_back(scan->state(pass->rows, config_.hidden, fmt::format("state {}", layer)));
    pass->scratch = cells_[0].scratch(builder, pass->rows);

    builder.append(record_of(&ops::flow_begin::kDef, grid(), "flows", {e, pass->tables[0], pass->counters[0]}));
    builder.on_gradient(pass->tables[0], [this, &builder, e](const View& dtable) {
        const auto target = builder.gradient_target(e);
        MILLRACE_ASSERT(!target.accumulate, "the energies have a second reader");
        builder.append(record_of(&ops::flow_begin_backward::kDef, grid(), "flows", {dtable, target}));
    });
    scan->run([&](std::int32_t t) { step(builder, pass, t); });

    const Value last = pass->tables.back();
    const Value surface{builder.buffer(1, e.view.rows, config_.cells(), builder.stat(), Role::activation, "surface"),
                        builder.training()};
    builder.append(record_of(&ops::flow_scatter::kDef, grid(), "surface", {last, builder.store().state(), surface}));
    builder.on_gradient(surface, [this, &builder, last](const View& dsurface) {
        builder.append(
            record_of(&ops::flow_scatter_backward::kDef, grid(), "surface", {last, dsurface, builder.gradient_target(last)}));
    });
    counters_ = pass->counters.back();
    tables_.clear();
    for (const Value& each : pass->tables) tables_.push_back(each.view);
    moves_ = pass->moved;
    return surface;
}

std::shared_ptr<tape::Scan> Cube::make_scan(tape::Builder& builder, const std::shared_ptr<Pass>& pass) const {
    tape::ScanOptions options;
    options.steps = config_.step_count();
    options.recompute_wide = config_.recompute != Recompute::none;
    options.recompute_values = config_.recompute == Recompute::step;
    options.chunks = config_.chunks(pass->rows, builder.training(),
                                    std::int64_t{pass->rows} * 4 * config_.hidden * config_.layers *
                                        static_cast<std::int64_t>(tensor::size_of(builder.real())) * builder.store().members());
    if (config_.skip_arrived && !(every_step_ && !builder.training())) {
        // All flows are alive at the first step.
        options.condition = [pass](std::int32_t t) {
            return t > 0 ? pass->counters[static_cast<std::size_t>(t)].columns(ops::flow_counter::alive, 1) : View{};
        };
        options.skipped = [this, &builder, pass](std::int32_t t) {
            const auto step = static_cast<std::size_t>(t);
            builder.append(
                record_of(&ops::flow_skip::kDef, count_params(t), fmt::format("step {} skip", t),
                          {pass->counters[step], pass->tables[step], pass->tables[step + 1], pass->counters[step + 1]}));
        };
        options.skipped_backward = [&builder, pass](std::int32_t t) {
            const auto step = static_cast<std::size_t>(t);
            builder.append(record_of(
                &ops::flow_skip_backward::kDef, ops::FlowSkipParams{}, fmt::format("step {} skip", t),
                {pass->counters[step], builder.gradient(pass->tables[step + 1]), builder.gradient(pass->tables[step])}));
        };
        options.clear = [&builder, pass](std::int32_t first, const std::vector<View>& gradients) {
            namespace at = ops::flow_clear;
            constexpr std::size_t kOuts = at::slots - at::out0;
            for (std::size_t begin = 0; begin < gradients.size(); begin += kOuts) {
                ops::Record clear = record_of(&ops::flow_clear::kDef, ops::FlowSkipParams{}, fmt::format("step {} skip", first),
                                              {pass->counters[static_cast<std::size_t>(first)], pass->counters[0]});
                for (std::size_t i = 0; i < std::min(kOuts, gradients.size() - begin); ++i)
                    clear.slots[at::out0 + i] = gradients[begin + i];
                builder.append(std::move(clear));
            }
        };
        options.first_parameter = neuron_first_;
        options.last_parameter = last_;
    }
    return std::make_shared<tape::Scan>(builder, std::move(options));
}

void Cube::step(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::int32_t t) const {
    const auto index = static_cast<std::size_t>(t);
    const nn::GruMask alive{pass->tables[index].view.columns(ops::flow::active, 1),
                            pass->counters[index].columns(ops::flow_counter::alive, 1)};
    Value x = neuron(builder, pass, index);
    for (std::size_t layer = 0; layer < cells_.size(); ++layer)
        x = cells_[layer].forward(builder, x, pass->states[layer], t, pass->scratch, alive);
    const Value u = builder.activation(pass->rows, 4, "heads", true);
    for (const Head& head : heads_) {
        nn::DensePlacement into;
        into.into = u.columns(head.first, head.outputs);
        head.out.forward(builder, head.in.forward(builder, x), into);
    }
    move(builder, pass, index, u);
    if (config_.spawns()) spawn(builder, pass, t);
    builder.append(record_of(&ops::flow_count::kDef, count_params(t), "count",
                             {pass->tables[index + 1], pass->moved[index], pass->counters[index], pass->counters[index + 1]}));
}

Value Cube::neuron(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::size_t t) const {
    const Value x = builder.activation(pass->rows, kInputColumns, "carrier input", true);
    const View parameters = builder.store().parameter_span(neuron_first_, neuron_last_);
    builder.append(
        record_of(&ops::flow_neuron_forward::kDef, neuron_, "neuron", {pass->tables[t], parameters, pass->counters[t], x}));
    builder.on_gradient(x, [this, &builder, pass, t, parameters](const View& dx) {
        tape::Builder::Target gradient = builder.parameter_gradient(neuron_first_);
        gradient.view = builder.store().gradient_span(neuron_first_, neuron_last_);
        builder.append(
            record_of(&ops::flow_neuron_backward::kDef, neuron_, "neuron",
                      {pass->tables[t], parameters, pass->counters[t], dx, gradient, builder.gradient_target(pass->tables[t])}));
    });
    return x;
}

void Cube::move(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::size_t t, const Value& u) const {
    const ops::FlowMoveParams params{.width = config_.width,
                                     .height = config_.height,
                                     .drift = static_cast<float>(config_.drift()),
                                     .noise = builder.training() ? static_cast<float>(config_.noise) : 0,
                                     .spawn_length = static_cast<float>(config_.spawn_length),
                                     .max_spawn = config_.spawns() ? config_.max_spawn : 0,
                                     .op_number = builder.next_op_number()};
    pass->moved.push_back(builder.buffer(1, pass->rows, ops::kMovedColumns, builder.stat(), Role::saved, "moves"));
    const View state = params.noise > 0 ? builder.store().state() : View{};
    builder.append(record_of(&ops::flow_move::kDef, params, "move",
                             {pass->tables[t], u, state, pass->counters[t], pass->moved[t], pass->tables[t + 1]}));
    builder.on_gradient(pass->tables[t + 1], [&builder, pass, t, u, params](const View& dafter) {
        builder.append(record_of(&ops::flow_move_backward::kDef, params, "move",
                                 {dafter, pass->moved[t], builder.gradient_target(u), builder.gradient_target(pass->tables[t])}));
    });
}

void Cube::spawn(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::int32_t t) const {
    const auto at = static_cast<std::size_t>(t);
    const ops::FlowSpawnParams params;
    builder.append(record_of(&ops::flow_spawn::kDef, params, "spawn",
                             {pass->tables[at], pass->tables[at + 1], pass->moved[at], pass->counters[at]}));
    for (const tape::Scan::State& state : pass->states)
        builder.append(record_of(&ops::flow_spawn_state::kDef, params, "spawn", {pass->tables[at + 1], state.after(t)}));
    builder.on_gradient(pass->tables[at + 1], [&builder, pass, at, t, params](const View& dafter) {
        builder.append(record_of(&ops::flow_spawn_backward::kDef, params, "spawn",
                                 {pass->moved[at], dafter, builder.gradient_target(pass->tables[at])}));
        for (const tape::Scan::State& state : pass->states)
            if (const View dh = builder.gradient(state.after(t)); dh.present())  // something has reached the state
                builder.append(record_of(&ops::flow_spawn_state_backward::kDef, params, "spawn", {pass->moved[at], dh}));
    });
}

}  // namespace millrace::models
