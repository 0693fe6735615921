#include "nn/transformer.h"

#include <cmath>

#include "nn/pointwise.h"
#include "nn/slot_target.h"
#include "ops/activation.h"
#include "ops/attention/attention.h"

namespace millrace::nn {
namespace {

DenseOptions linear(std::int32_t in, std::int32_t out, ops::Activation activation = ops::Activation::none, float dropout = 0) {
    DenseOptions options;
    options.in = in;
    options.out = out;
    options.activation = activation;
    options.dropout = dropout;
    options.weight_init = tape::Init::uniform(1 / std::sqrt(static_cast<double>(in)));
    return options;
}

}  // namespace

TransformerLayer::TransformerLayer(tape::Store& store, const std::string& name, const TransformerOptions& options)
    : name_(name), options_(options) {
    const std::int32_t width = options.width;
    MILLRACE_ASSERT(options.heads > 0 && width > 0 && width % options.heads == 0, name);
    norm1_ = LayerNorm(store, name + ".norm1", width);
    in_ = Dense(store, {name + ".self_attn.in_proj"}, {}, linear(width, 3 * width));
    out_ = Dense(store, {name + ".self_attn.out_proj"}, {}, linear(width, width, ops::Activation::none, options.dropout));
    norm2_ = LayerNorm(store, name + ".norm2", width);
    widen_ = Dense(store, {name + ".linear1"}, {}, linear(width, options.inner, ops::Activation::gelu));
    narrow_ = Dense(store, {name + ".linear2"}, {}, linear(options.inner, width, ops::Activation::none, options.dropout));
}

tape::Value TransformerLayer::forward(tape::Builder& builder, const tape::Value& x, const Sequences& sequences) const {
    MILLRACE_ASSERT(x.view.rows == sequences.rows() && x.view.cols == options_.width, name_);
    const tape::Value seen = attend(builder, in_.forward(builder, norm1_.forward(builder, x)), sequences);
    const tape::Value h = add(builder, out_.forward(builder, seen), x, name_ + ".self_attn");
    const tape::Value more = narrow_.forward(builder, widen_.forward(builder, norm2_.forward(builder, h)));
    return add(builder, more, h, name_);
}

tape::Value TransformerLayer::attend(tape::Builder& builder, const tape::Value& qkv, const Sequences& sequences) const {
    const std::string label = name_ + ".self_attn";
    const ops::AttentionParams params{options_.heads, sequences.prefix, options_.causal};
    const tape::Value out = builder.activation(qkv.view.rows, options_.width, label, builder.training());
    const tensor::View level =
        builder.buffer(1, qkv.view.rows, options_.heads, builder.stat(), tape::Role::saved, label + ".level");
    builder.append(record_of(&ops::attention_forward::kDef, params, label, {qkv, sequences.lengths, level, out}));
    if (!builder.training()) return out;

    builder.on_backward([&builder, params, qkv, sequences, level, out, label] {
        const tensor::View dout = builder.gradient(out);
        if (!dout.present()) return;
        const tape::Builder::Target dqkv = builder.gradient_target(qkv);
        MILLRACE_ASSERT(!dqkv.accumulate, label);
        builder.append(record_of(&ops::attention_backward::kDef, params, label, {dout, qkv, sequences.lengths, level, dqkv}));
    });
    return out;
}

}  // namespace millrace::nn
