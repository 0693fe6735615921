#include "nn/layer_norm.h"

#include "nn/slot_target.h"
#include "ops/norm/layernorm.h"

namespace millrace::nn {

LayerNorm::LayerNorm(tape::Store& store, std::string name, std::int32_t cols, float eps) : name_(std::move(name)), eps_(eps) {
    gamma_ = store.add_vector({name_ + ".weight"}, cols, tape::Init::value(1));
    beta_ = store.add_vector({name_ + ".bias"}, cols, tape::Init::value(0));
}

tape::Value LayerNorm::forward(tape::Builder& builder, const tape::Value& x) const {
    namespace fore = ops::layernorm_forward;
    const bool training = builder.training();
    const tape::Store& store = builder.store();
    const tape::Value y = builder.activation(x.view.rows, x.view.cols, name_, training);
    const tensor::View mean = builder.buffer(1, x.view.rows, 1, builder.stat(), tape::Role::saved, name_ + ".mean");
    const tensor::View inv_std = builder.buffer(1, x.view.rows, 1, builder.stat(), tape::Role::saved, name_ + ".inv_std");
    ops::Record record{&ops::layernorm_forward::def, ops::LayerNormParams{eps_}, {}, 0, name_};
    record.slots[fore::x] = x.view;
    record.slots[fore::gamma] = store.parameter(gamma_);
    record.slots[fore::beta] = store.parameter(beta_);
    record.slots[fore::mean] = mean;
    record.slots[fore::inv_std] = inv_std;
    record.slots[fore::y] = y.view;
    builder.append(std::move(record));
    if (!training) return y;

    builder.on_backward([layer = *this, &builder, x, y, mean, inv_std] {
        namespace back = ops::layernorm_backward;
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        ops::Record rule{&ops::layernorm_backward::def, ops::LayerNormParams{layer.eps_}, {}, 0, layer.name_};
        rule.slots[back::dy] = dy;
        rule.slots[back::x] = x.view;
        rule.slots[back::gamma] = builder.store().parameter(layer.gamma_);
        rule.slots[back::mean] = mean;
        rule.slots[back::inv_std] = inv_std;
        if (x.needs_gradient) write_to(rule, back::dx, builder.gradient_target(x));
        write_to(rule, back::dgamma, builder.parameter_gradient(layer.gamma_));
        write_to(rule, back::dbeta, builder.parameter_gradient(layer.beta_));
        builder.append(std::move(rule));
    });
    return y;
}

}  // namespace millrace::nn
