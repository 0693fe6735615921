#include "nn/gru.h"

#include <cmath>

#include "nn/slot_target.h"
#include "ops/recurrent/gru.h"

namespace millrace::nn {

using tape::Init;

struct GruCell::Call {
    tape::Value x, before, after;
    GruMask mask;
    tensor::View gates;
};

GruCell::GruCell(tape::Store& store, std::string name, std::int32_t in, std::int32_t hidden)
    : name_(std::move(name)), hidden_(hidden) {
    w_ih_ = store.add_matrix({name_ + ".weight_ih"}, 3 * hidden, in, Init::uniform(std::sqrt(6.0 / (3 * hidden + in))));
    w_hh_ = store.add_matrix({name_ + ".weight_hh"}, 3 * hidden, hidden, Init::orthonormal());
    b_ih_ = store.add_vector({name_ + ".bias_ih"}, 3 * hidden, Init::blocks({0, 1, 0}));
    b_hh_ = store.add_vector({name_ + ".bias_hh"}, 3 * hidden, Init::blocks({0, 1, 0}));
}

tensor::View GruCell::scratch(tape::Builder& builder, std::int32_t rows) const {
    return builder.buffer(1, rows, 6 * hidden_, builder.stat(), tape::Role::scratch, "products");
}

tape::Value GruCell::forward(tape::Builder& builder, const tape::Value& x, const tape::Scan::State& state, std::int32_t t,
                             const tensor::View& scratch, const GruMask& mask) const {
    const tape::Store& store = builder.store();
    Call call{x, state.before(t), state.after(t), mask, {}};
    if (builder.training()) {
        call.gates = builder.intermediate(1, x.view.rows, 4 * hidden_, name_ + ".gates", true);
        builder.roll_gradient(call.after);
    }
    builder.append(record_of(&ops::gru_forward::kDef, ops::GruParams{}, name_,
                             {x, call.before, mask.rows, mask.member, store.weight(w_ih_), store.weight(w_hh_),
                              store.parameter(b_ih_), store.parameter(b_hh_), scratch, call.gates, call.after}));
    if (builder.training()) builder.on_backward([cell = *this, &builder, call] { cell.backward(builder, call); });
    return call.after;
}

void GruCell::backward(tape::Builder& builder, const Call& call) const {
    namespace at = ops::gru_backward;
    const tape::Builder::Rolling gradient = builder.take_gradient(call.after, ops::kGruPairs);
    if (!gradient.view.present()) return;  // nothing reaches the state
    const tensor::View dgates = builder.gradient_window(call.x.view.rows, 4 * hidden_, name_ + ".dgates");
    ops::Record record{&ops::gru_backward::kDef, ops::GruBackwardParams{gradient.begins}, {}, 0, name_};
    record.slots[at::dh] = gradient.view;
    record.slots[at::gates] = call.gates;
    record.slots[at::h] = call.before.view;
    record.slots[at::mask] = call.mask.rows;
    record.slots[at::flag] = call.mask.member;
    record.slots[at::dgates] = dgates;
    for (std::size_t i = 0; i < gradient.products.size(); ++i) {
        record.slots[static_cast<std::size_t>(at::a0) + 2 * i] = gradient.products[i].a;
        record.slots[static_cast<std::size_t>(at::w0) + 2 * i] = gradient.products[i].w;
    }
    builder.append(std::move(record));

    // Of the gates' gradients r_pre, z_pre, n_pre, hn: what comes from x takes the first three, what comes from h all but n_pre.
    const tensor::View from_x = dgates.columns(0, 3 * hidden_), rz = dgates.columns(0, 2 * hidden_),
                       hn = dgates.columns(3 * hidden_, hidden_);
    const auto w_ih = builder.parameter_gradient(w_ih_), w_hh = builder.parameter_gradient(w_hh_);
    const auto b_ih = builder.parameter_gradient(b_ih_), b_hh = builder.parameter_gradient(b_hh_);
    append_weight_product(builder, from_x, call.x.view, w_ih, name_);
    append_weight_product(builder, rz, call.before.view, {w_hh.view.row_window(0, 2 * hidden_), w_hh.accumulate}, name_);
    append_weight_product(builder, hn, call.before.view, {w_hh.view.row_window(2 * hidden_, hidden_), w_hh.accumulate}, name_);
    const Slot b_rz{b_hh.view.columns(0, 2 * hidden_), b_hh.accumulate},
        b_hn{b_hh.view.columns(2 * hidden_, hidden_), b_hh.accumulate};
    builder.append_weight_gradient(
        record_of(&ops::column_sum::kDef, ops::ColumnSumParams{{0, 0, 3 * hidden_}}, name_, {dgates, b_ih, b_rz, b_hn}));
    // dh is now the part of the gradient of the state before that comes past the gates; what comes through them waits beside it.
    const tensor::View recurrent = builder.store().weight(w_hh_);
    builder.add_product(call.before, dgates.columns(3 * hidden_, hidden_), recurrent.row_window(2 * hidden_, hidden_), name_);
    builder.add_product(call.before, dgates.columns(0, 2 * hidden_), recurrent.row_window(0, 2 * hidden_), name_);
    builder.add_product(call.x, dgates.columns(0, 3 * hidden_), builder.store().weight(w_ih_), name_);
}

}  // namespace millrace::nn
