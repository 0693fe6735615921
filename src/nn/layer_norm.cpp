#include "nn/layer_norm.h"

#include "nn/slot_target.h"
#include "ops/norm/layernorm.h"

namespace millrace::nn {

LayerNorm::LayerNorm(tape::Store& store, const std::vector<std::string>& names, std::int32_t cols,
                     const tape::ParameterGroupNames& parameter_groups, float eps)
    : label_(label_of(names)), groups_(static_cast<std::int32_t>(names.size())), eps_(eps) {
    gamma_ = store.add_vector(with_suffix(names, ".weight"), cols, tape::Init::value(1), parameter_groups);
    beta_ = store.add_vector(with_suffix(names, ".bias"), cols, tape::Init::value(0), parameter_groups);
}

tape::Value LayerNorm::forward(tape::Builder& builder, const tape::Value& x, const tape::Value& residual) const {
    const bool training = builder.training();
    const tape::Store& store = builder.store();
    const std::int32_t rows = x.view.rows;
    const auto saved = [&](const char* name) {
        return builder.buffer(groups_, rows, 1, builder.stat(), tape::Role::saved, label_ + name);
    };
    const auto split = [this](const tape::Value& value) { return value.view.present() ? value.split_columns(groups_) : value; };
    const tape::Value y = builder.activation(rows, x.view.cols, label_, training), in = split(x), other = split(residual);
    const tensor::View mean = saved(".mean"), inv_std = saved(".inv_std");
    const tensor::View sum = residual.view.present()
                                 ? builder.buffer(groups_, rows, in.view.cols, builder.real(), tape::Role::saved, label_ + ".sum")
                                 : tensor::View{};
    builder.append(record_of(&ops::layernorm_forward::kDef, ops::LayerNormParams{eps_}, label_,
                             {in, other, store.parameter(gamma_), store.parameter(beta_), mean, inv_std, sum, split(y)}));
    const tensor::View normed = sum.present() ? sum : in.view;
    builder.on_gradient(split(y), [layer = *this, &builder, in, other, normed, mean, inv_std](const tensor::View& dy) {
        const auto target = [&](const tape::Value& value) -> Slot {
            return value.view.present() && value.needs_gradient ? Slot{builder.gradient_target(value)} : Slot{};
        };
        builder.append(record_of(&ops::layernorm_backward::kDef, ops::LayerNormParams{layer.eps_}, layer.label_,
                                 {dy, normed, builder.store().parameter(layer.gamma_), mean, inv_std, target(in), target(other),
                                  builder.parameter_gradient(layer.gamma_), builder.parameter_gradient(layer.beta_)}));
    });
    return y;
}

}  // namespace millrace::nn
