#include "nn/transformer.h"

#include "nn/pointwise.h"
#include "nn/slot_target.h"
#include "ops/activation.h"
#include "ops/attention/attention.h"

namespace millrace::nn {

TransformerLayer::TransformerLayer(tape::Store& store, const std::string& name, const TransformerOptions& options)
    : name_(name), options_(options) {
    const std::int32_t width = options.width;
    DenseOptions out = linear(width, width), narrow = linear(options.inner, width);
    out.dropout = narrow.dropout = options.dropout;
    MILLRACE_ASSERT(options.heads > 0 && width > 0 && width % options.heads == 0, name);
    norm1_ = LayerNorm(store, name + ".norm1", width);
    in_ = Dense(store, {name + ".self_attn.in_proj"}, {}, linear(width, 3 * width));
    out_ = Dense(store, {name + ".self_attn.out_proj"}, {}, out);
    norm2_ = LayerNorm(store, name + ".norm2", width);
    widen_ = Dense(store, {name + ".linear1"}, {}, linear(width, options.inner, ops::Activation::gelu));
    narrow_ = Dense(store, {name + ".linear2"}, {}, narrow);
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
    const tensor::View logsumexp =
        builder.buffer(1, qkv.view.rows, options_.heads, builder.stat(), tape::Role::saved, label + ".logsumexp");
    builder.append(record_of(&ops::attention_forward::kDef, params, label, {qkv, sequences.lengths, logsumexp, out}));
    if (!builder.training()) return out;

    builder.on_backward([&builder, params, qkv, sequences, logsumexp, out, label] {
        const tensor::View dout = builder.gradient(out);
        if (!dout.present()) return;
        const tape::Builder::Target dqkv = builder.gradient_target(qkv);
        MILLRACE_ASSERT(!dqkv.accumulate, label);
        const tensor::View delta =
            builder.buffer(1, qkv.view.rows, params.heads, builder.stat(), tape::Role::scratch, label + ".delta");
        builder.append(record_of(&ops::attention_backward::kDef, params, label,
                                 {dout, qkv, sequences.lengths, logsumexp, out, delta, dqkv}));
    });
    return out;
}

}  // namespace millrace::nn
