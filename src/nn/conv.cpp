#include "nn/conv.h"

#include <cmath>

#include "tape/record.h"

namespace millrace::nn {

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
    ops::ConvParams params{o.height, o.width, o.in, o.out, o.kernel_h, o.kernel_w, o.pool_h, o.pool_w, o.relu, o.channels_first};
    params.op_number = builder.next_op_number();
    if (builder.training()) params.dropout = o.dropout;
    MILLRACE_ASSERT(x.view.g == 1 && x.view.cols == params.in_columns(), name_);
    const std::int32_t rows = x.view.rows, columns = params.out_columns();
    const tape::Value y = builder.activation(rows, columns, name_, builder.training());
    tensor::View chosen;
    if (builder.training() && params.chooses())
        chosen = builder.buffer(1, rows, columns, tensor::DType::u8, tape::Role::saved, name_ + ".chosen");
    const tensor::View state = params.dropout > 0 ? store.state() : tensor::View{};
    builder.append(
        tape::record_of(&ops::conv_forward::kDef, params, name_,
                        {x, store.weight(weight_), o.bias ? store.parameter(bias_) : tensor::View{}, state, chosen, y}));
    builder.on_gradient(y, [layer = *this, &builder, x, params, chosen, state](const tensor::View& dy) {
        tape::Slot dx, dbias;
        if (x.needs_gradient) dx = builder.gradient_target(x);
        if (layer.options_.bias) dbias = builder.parameter_gradient(layer.bias_);
        builder.append(tape::record_of(
            &ops::conv_backward::kDef, params, layer.name_,
            {dy, chosen, x, builder.store().weight(layer.weight_), state, dx, builder.parameter_gradient(layer.weight_), dbias}));
    });
    return y;
}

}  // namespace millrace::nn
