#include "nn/conv.h"

#include <cmath>

#include "tape/record.h"

namespace millrace::nn {

/// What the backward rule remembers of one forward call.
struct Conv::Call {
    tape::Value x, y;
    ops::ConvParams params;
    tensor::View chosen;
};

Conv::Conv(tape::Store& store, std::string name, const ConvOptions& options) : options_(options), name_(std::move(name)) {
    const std::int32_t taps = options.kernel_h * options.kernel_w;
    const tape::Init init = options.weight_init.value_or(tape::Init::normal(std::sqrt(2.0 / (taps * options.out))));
    weight_ = store.add_matrix({name_ + ".weight"}, options.out, options.in * taps, init, tape::kWeights,
                               {options.in, options.kernel_h, options.kernel_w});
    if (options.bias) bias_ = store.add_vector({name_ + ".bias"}, options.out, tape::Init::value(0));
}

tape::Value Conv::forward(tape::Builder& builder, const tape::Value& x) const {
    const tape::Store& store = builder.store();
    const ConvOptions& o = options_;
    Call call{x, {}, {}, {}};
    call.params = {o.height, o.width, o.in, o.out, o.kernel_h, o.kernel_w, o.pool_h, o.pool_w, o.relu, o.channels_first};
    call.params.op_number = builder.next_op_number();
    if (builder.training()) call.params.dropout = o.dropout;
    MILLRACE_ASSERT(x.view.g == 1 && x.view.cols == call.params.in_columns(), name_);
    const std::int32_t rows = x.view.rows, columns = call.params.out_columns();
    call.y = builder.activation(rows, columns, name_, builder.training());
    if (builder.training() && call.params.chooses())
        call.chosen = builder.buffer(1, rows, columns, tensor::DType::u8, tape::Role::saved, name_ + ".chosen");
    builder.append(tape::record_of(&ops::conv_forward::kDef, call.params, name_,
                                   {x, store.weight(weight_), o.bias ? store.parameter(bias_) : tensor::View{},
                                    call.params.dropout > 0 ? store.state() : tensor::View{}, call.chosen, call.y}));
    builder.on_gradient(call.y, [layer = *this, &builder, call](const tensor::View& dy) { layer.backward(builder, call, dy); });
    return call.y;
}

void Conv::backward(tape::Builder& builder, const Call& call, const tensor::View& dy) const {
    const tape::Store& store = builder.store();
    tape::Slot dx, dbias;
    if (call.x.needs_gradient) dx = builder.gradient_target(call.x);
    if (options_.bias) dbias = builder.parameter_gradient(bias_);
    builder.append(
        tape::record_of(&ops::conv_backward::kDef, call.params, name_,
                        {dy, call.chosen, call.x, store.weight(weight_), call.params.dropout > 0 ? store.state() : tensor::View{},
                         dx, builder.parameter_gradient(weight_), dbias}));
}

}  // namespace millrace::nn
