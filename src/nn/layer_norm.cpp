#include "nn/layer_norm.h"

#include "nn/slot_target.h"
#include "ops/norm/layernorm.h"

namespace millrace::nn {

LayerNorm::LayerNorm(tape::Store& store, std::string name, std::int32_t cols, float eps) : name_(std::move(name)), eps_(eps) {
    gamma_ = store.add_vector({name_ + ".weight"}, cols, tape::Init::value(1));
    beta_ = store.add_vector({name_ + ".bias"}, cols, tape::Init::value(0));
}

tape::Value LayerNorm::forward(tape::Builder& builder, const tape::Value& x) const {
    const bool training = builder.training();
    const tape::Store& store = builder.store();
    const tape::Value y = builder.activation(x.view.rows, x.view.cols, name_, training);
    const tensor::View mean = builder.buffer(1, x.view.rows, 1, builder.stat(), tape::Role::saved, name_ + ".mean");
    const tensor::View inv_std = builder.buffer(1, x.view.rows, 1, builder.stat(), tape::Role::saved, name_ + ".inv_std");
    builder.append(record_of(&ops::layernorm_forward::kDef, ops::LayerNormParams{eps_}, name_,
                             {x, store.parameter(gamma_), store.parameter(beta_), mean, inv_std, y}));
    if (!training) return y;

    builder.on_backward([layer = *this, &builder, x, y, mean, inv_std] {
        const tensor::View dy = builder.gradient(y);
        if (!dy.present()) return;
        const Slot dx = x.needs_gradient ? builder.gradient_target(x) : Slot{};
        builder.append(record_of(&ops::layernorm_backward::kDef, ops::LayerNormParams{layer.eps_}, layer.name_,
                                 {dy, x, builder.store().parameter(layer.gamma_), mean, inv_std, dx,
                                  builder.parameter_gradient(layer.gamma_), builder.parameter_gradient(layer.beta_)}));
    });
    return y;
}

}  // namespace millrace::nn
