#include "nn/transformer.h"

#include "nn/pointwise.h"
#include "nn/slot_target.h"
#include "ops/activation.h"
#include "ops/attention/attention.h"

namespace millrace::nn {
namespace {

/// The groups of a single member as if they were members.
tensor::View abreast(tensor::View view, std::int32_t groups) {
    if (groups == 1) return view;
    view.k = groups;
    view.stride_k = view.stride_g;
    view.g = 1;
    view.stride_g = 0;
    return view;
}
tensor::View columns_abreast(const tensor::View& view, std::int32_t groups) {
    return groups == 1 ? view : abreast(view.split_columns(groups), groups);
}
tensor::View repeated(tensor::View view, std::int32_t times) {
    view.k = times;
    view.stride_k = 0;
    return view;
}

/// A number for every position and head, of `groups` groups abreast.
tensor::View per_head(tape::Builder& builder, const tape::Value& qkv, std::int32_t groups, std::int32_t heads, tape::Role role,
                      const std::string& name) {
    return abreast(builder.buffer(groups, qkv.view.rows, heads, builder.stat(), role, name), groups);
}

}  // namespace

TransformerLayer::TransformerLayer(tape::Store& store, const std::vector<std::string>& names, const TransformerOptions& options)
    : label_(label_of(names)), groups_(static_cast<std::int32_t>(names.size())), options_(options) {
    const std::int32_t width = options.width;
    MILLRACE_ASSERT(options.heads > 0 && width > 0 && width % options.heads == 0, label_);
    const auto norm = [&](const char* name) {
        return LayerNorm(store, with_suffix(names, name), width, options.parameter_groups);
    };
    const auto dense = [&](const char* name, DenseOptions shape, float dropout = 0) {
        shape.parameter_groups = options.parameter_groups;
        shape.dropout = dropout;
        return Dense(store, with_suffix(names, name), {}, shape);
    };
    norm1_ = norm(".norm1");
    in_ = dense(".self_attn.in_proj", linear(width, 3 * width));
    out_ = dense(".self_attn.out_proj", linear(width, width), options.dropout);
    norm2_ = norm(".norm2");
    widen_ = dense(".linear1", linear(width, options.inner, ops::Activation::gelu));
    narrow_ = dense(".linear2", linear(options.inner, width), options.dropout);
}

tape::Value TransformerLayer::forward(tape::Builder& builder, const tape::Value& x, const Sequences& sequences) const {
    MILLRACE_ASSERT(x.view.rows == sequences.rows() && x.view.cols == groups_ * options_.width, label_);
    if (!options_.norm_first) {
        const tape::Value seen = attend(builder, in_.forward(builder, x), sequences);
        const tape::Value h = norm1_.forward(builder, out_.forward(builder, seen), x);
        return norm2_.forward(builder, narrow_.forward(builder, widen_.forward(builder, h)), h);
    }
    const tape::Value seen = attend(builder, in_.forward(builder, norm1_.forward(builder, x)), sequences);
    const tape::Value h = add(builder, out_.forward(builder, seen), x, label_ + ".self_attn");
    const tape::Value more = narrow_.forward(builder, widen_.forward(builder, norm2_.forward(builder, h)));
    return add(builder, more, h, label_);
}

tape::Value TransformerLayer::attend(tape::Builder& builder, const tape::Value& qkv, const Sequences& sequences) const {
    const std::string label = label_ + ".self_attn";
    const ops::AttentionParams params{options_.heads, sequences.prefix, options_.causal};
    const std::int32_t width = options_.width;
    const tape::Value all = builder.activation(qkv.view.rows, groups_ * width, label, builder.training());
    if (StepCaches* caches = sequences.caches) {
        MILLRACE_ASSERT(!builder.training() && options_.causal && sequences.prefix == 0, label);
        const tensor::View cache = caches->layers.at(caches->taken++);
        for (std::int32_t g = 0; g < groups_; ++g)
            builder.append(record_of(&ops::attention_cached::kDef, ops::CachedAttentionParams{options_.heads}, label,
                                     {qkv.columns(3 * g * width, 3 * width), caches->position,
                                      cache.columns(2 * g * width, 2 * width), all.columns(g * width, width)}));
        return all;
    }
    // One record for all groups of a member, or one for all members of a group: the operator has one such axis.
    const bool one_member = builder.store().members() == 1;
    const std::int32_t records = one_member ? 1 : groups_, side = one_member ? groups_ : 1;
    for (std::int32_t r = 0; r < records; ++r) {
        const auto part = [&](const tape::Value& value) {
            return value.columns(r * value.view.cols / records, value.view.cols / records);
        };
        const tape::Value in = part(qkv), out = part(all);
        const tensor::View lengths = side > 1 ? repeated(sequences.lengths, side) : sequences.lengths,
                           logsumexp = per_head(builder, in, side, params.heads, tape::Role::saved, label + ".logsumexp");
        builder.append(record_of(&ops::attention_forward::kDef, params, label,
                                 {columns_abreast(in.view, side), lengths, logsumexp, columns_abreast(out.view, side)}));
        builder.on_gradient(out, [&builder, params, in, lengths, logsumexp, out, label, side](const tensor::View& dout) {
            const tape::Builder::Target dqkv = builder.gradient_target(in);
            MILLRACE_ASSERT(!dqkv.accumulate, label);
            const tensor::View delta = per_head(builder, in, side, params.heads, tape::Role::scratch, label + ".delta");
            builder.append(record_of(&ops::attention_backward::kDef, params, label,
                                     {columns_abreast(dout, side), columns_abreast(in.view, side), lengths, logsumexp,
                                      columns_abreast(out.view, side), delta, columns_abreast(dqkv.view, side)}));
        });
    }
    return all;
}

}  // namespace millrace::nn
