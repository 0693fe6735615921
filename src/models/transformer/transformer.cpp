#include "models/transformer/transformer.h"

#include <fmt/format.h>

#include "models/language_model.h"
#include "models/registry.h"

namespace millrace::models {
namespace {

struct TransformerChoice {
    LanguageConfig language;
    std::int32_t depth = 4;
};

void transformer_keys(Keys& keys, TransformerChoice& choice) {
    language_keys(keys, choice.language);
    keys.add("depth", choice.depth, "layers").between(1, 256);
}

base::Schema transformer_schema(const std::string& preset) {
    const TransformerChoice debug{.language = {.width = 32, .inner = 64}, .depth = 2};
    return schema_of(transformer_keys, preset == "debug" ? debug : TransformerChoice{});
}

base::Result<std::unique_ptr<Model>> make_transformer(const base::Recipe& recipe, const data::Fields& fields) {
    TransformerChoice choice = read_keys(transformer_keys, recipe);
    take_fields(choice.language, fields);
    MILLRACE_TRY(check(choice.language));
    return std::unique_ptr<Model>(std::make_unique<Transformer>(std::move(choice.language), choice.depth));
}

}  // namespace

base::Status Transformer::declare_body(tape::Store& store) {
    layers_.clear();
    const LanguageConfig& c = language();
    const nn::TransformerOptions options{c.width, c.heads, c.inner, true, c.dropout, false};
    for (std::int32_t i = 0; i < depth_; ++i) layers_.emplace_back(store, fmt::format("layers.{}", i), options);
    return base::ok();
}

tape::Value Transformer::body(tape::Builder& builder, const tape::Value& x, const nn::Sequences& sequences) const {
    tape::Value y = x;
    for (const nn::TransformerLayer& layer : layers_) y = layer.forward(builder, y, sequences);
    return y;
}

std::string Transformer::description() const {
    const LanguageConfig& c = language();
    return fmt::format("{} layers of width {}, {} heads, {} inner; vocabulary of {}, windows of {} tokens", depth_, c.width,
                       c.heads, c.inner, c.vocabulary, c.length);
}

Family transformer_family() {
    Family family = language_family("transformer");
    family.presets = {"debug", "base"};
    family.schema = transformer_schema;
    family.make = make_transformer;
    return family;
}

}  // namespace millrace::models
