#include "models/energy_flow/text_bridge.h"

#include <fmt/format.h>

#include "nn/losses.h"
#include "ops/pointwise/pointwise.h"
#include "ops/text/text.h"
#include "tape/record.h"

namespace millrace::models {
namespace {

constexpr const char* kDecoderLoss = "text.decoder.loss";

std::vector<nn::TransformerLayer> stack(tape::Store& store, const std::string& name, const TextBridgeConfig& config,
                                        bool causal) {
    const nn::TransformerOptions options{config.width, config.heads, config.inner, causal};
    std::vector<nn::TransformerLayer> layers;
    layers.reserve(static_cast<std::size_t>(config.layers));
    for (std::int32_t i = 0; i < config.layers; ++i) layers.emplace_back(store, fmt::format("{}.layers.{}", name, i), options);
    return layers;
}

/// A copy with a type and a lifetime of its own, through which no gradient flows.
tensor::View copied(tape::Builder& builder, const tensor::View& from, const tensor::View& to, const char* name) {
    builder.append(tape::record_of(&ops::copy::kDef, ops::CopyParams{}, name, {from, to}));
    return to;
}

tensor::View numbers(tape::Builder& builder, std::int32_t rows, std::int32_t cols, const char* name) {
    return builder.buffer(1, rows, cols, tensor::DType::i32, tape::Role::activation, name);
}

void fill_zero(tape::Builder& builder, const tensor::View& out, const char* name) {
    builder.append(tape::record_of(&ops::fill::kDef, ops::FillParams{}, name, {out}));
}

}  // namespace

TextBridge::TextBridge(tape::Store& store, const EnergyFlowConfig& config, const TextShape& texts)
    : config_(config.text_bridge), target_tokens_(texts.target_tokens) {
    const std::int32_t width = config_.width, cells = config.cells(), vocabulary = texts.tokenizer->vocabulary();
    in_ = nn::TokenEmbedding(store, "text.encoder.embedding", vocabulary, texts.input_tokens, width);
    encoder_ = stack(store, "text.encoder", config_, false);
    encoder_norm_ = nn::LayerNorm(store, "text.encoder.norm", width);
    surface_ =
        nn::Dense(store, {"text.encoder.surface"}, {}, nn::linear(width, cells, ops::Activation::tanh, tape::Init::normal(0.02)));
    prefix_ = nn::Dense(store, {"text.decoder.prefix"}, {}, nn::linear(cells, kPrefix * width));
    out_ = nn::TokenEmbedding(store, "text.decoder.embedding", vocabulary, kPrefix + texts.target_tokens, width);
    decoder_ = stack(store, "text.decoder", config_, true);
    decoder_norm_ = nn::LayerNorm(store, "text.decoder.norm", width);
    logits_ = nn::Dense(store, {"text.decoder.logits"}, {}, nn::linear(width, vocabulary));
}

tape::Value TextBridge::encode(tape::Builder& builder, const nn::Sequences& inputs) const {
    tape::Value x = in_.forward(builder, inputs);
    for (const nn::TransformerLayer& layer : encoder_) x = layer.forward(builder, x, inputs);
    x = encoder_norm_.forward(builder, x);
    return surface_.forward(builder, nn::masked_mean(builder, x, inputs, "text.encoder.mean"));
}

tape::Value TextBridge::prefix_of(tape::Builder& builder, const tensor::View& surface) const {
    const tape::Value seen = builder.activation(surface.rows, surface.cols, "text.decoder.seen", false);
    copied(builder, surface, seen.view, "text.decoder.seen");
    return prefix_.forward(builder, seen);
}

tape::Value TextBridge::token_logits(tape::Builder& builder, const tape::Value& prefix, const nn::Sequences& sentences) const {
    tape::Value x = out_.forward(builder, sentences, prefix);
    for (const nn::TransformerLayer& layer : decoder_) x = layer.forward(builder, x, sentences);
    return logits_.forward(builder, decoder_norm_.forward(builder, x));
}

nn::Sequences TextBridge::gather(tape::Builder& builder, data::BatchSource& source, data::Part part, bool target,
                                 std::int32_t rows) const {
    nn::Sequences sentences;
    const std::vector<tensor::View> gathered = target ? source.gather(builder, part, rows, {{"target_tokens"}, {"target_length"}})
                                                      : source.gather(builder, part, rows, {{"input_tokens"}, {"input_length"}});
    sentences.ids = gathered[0];
    sentences.lengths = gathered[1];
    sentences.prefix = target ? kPrefix : 0;
    return sentences;
}

void TextBridge::learn(tape::Builder& builder, data::BatchSource& source, data::Part part, const tensor::View& energies,
                       const tensor::View& surface) const {
    const nn::Sequences inputs = gather(builder, source, part, false, energies.rows);
    nn::mse(builder, encode(builder, inputs), energies, {config_.encode_weight, false, "text.encoder.loss"});
    const nn::Sequences targets = gather(builder, source, part, true, surface.rows);
    nn::TokenLossOptions options;
    options.weight = config_.decode_weight;
    options.name = kDecoderLoss;
    nn::token_cross_entropy(builder, token_logits(builder, prefix_of(builder, surface), targets), targets, kPrefix - 1, options);
}

void TextBridge::append_loss_total(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const {
    nn::total_tokens(builder, gather(builder, source, data::Part::train, true, rows), kDecoderLoss);
}

TextBridge::Figures TextBridge::measure(tape::Builder& builder, data::BatchSource& source, data::Part part,
                                        const tensor::View& surface) const {
    Figures figures;
    const nn::Sequences inputs = gather(builder, source, part, false, surface.rows);
    const tape::Value encoded = encode(builder, inputs);
    figures.encoded = copied(
        builder, encoded.view,
        builder.buffer(1, encoded.view.rows, encoded.view.cols, builder.stat(), tape::Role::activation, "text.encoder.surface"),
        "text.encoder.surface");
    const nn::Sequences targets = gather(builder, source, part, true, surface.rows);
    figures.targets = targets.ids;
    figures.lengths = targets.lengths;
    figures.tally = builder.buffer(1, 1, ops::kTallyColumns, builder.stat(), tape::Role::activation, "text.decoder.tally");
    nn::TokenLossOptions options;
    options.weight = config_.decode_weight;
    options.tally = figures.tally;
    options.name = kDecoderLoss;
    nn::token_cross_entropy(builder, token_logits(builder, prefix_of(builder, surface), targets), targets, kPrefix - 1, options);
    for (const tensor::View& view : {figures.encoded, figures.targets, figures.lengths, figures.tally}) builder.keep(view);
    figures.answers = decode(builder, surface);
    return figures;
}

nn::Sequences TextBridge::decode(tape::Builder& builder, const tensor::View& surface) const {
    nn::Sequences answers;
    answers.ids = numbers(builder, surface.rows, target_tokens_, "text.answers");
    answers.lengths = numbers(builder, surface.rows, 1, "text.answer lengths");
    answers.prefix = kPrefix;
    fill_zero(builder, answers.ids, "text.answers");
    fill_zero(builder, answers.lengths, "text.answers");
    const tape::Value prefix = prefix_of(builder, surface);
    // Written once or in every repetition, read in each: their memory must not serve the section's own buffers in between.
    for (const tensor::View& view : {answers.ids, answers.lengths, prefix.view}) builder.keep(view);
    builder.close_section();
    nn::token_choose(builder, token_logits(builder, prefix, answers), answers, kPrefix - 1, data::Tokenizer::kEnd, "text.choose");
    builder.close_section(target_tokens_);
    return answers;
}

}  // namespace millrace::models
