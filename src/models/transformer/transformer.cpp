#include "models/transformer/transformer.h"

#include <fmt/format.h>

#include "models/families.h"
#include "models/go_on.h"

namespace millrace::models {
namespace {

base::Schema transformer_schema(const std::string& preset) {
    base::Schema keys;
    add_language_keys(keys);
    keys.integer("depth", 4, "layers").between(1, 256);
    if (preset == "debug") {
        keys.at("width").initial = std::int64_t{32};
        keys.at("inner").initial = std::int64_t{64};
        keys.at("depth").initial = std::int64_t{2};
    }
    return keys;
}

base::Result<std::unique_ptr<Model>> make_transformer(const base::Recipe& recipe, const data::Fields& fields) {
    LanguageConfig config = language_config(recipe, fields);
    MILLRACE_TRY(check(config));
    return std::unique_ptr<Model>(
        std::make_unique<Transformer>(std::move(config), static_cast<std::int32_t>(recipe.integer("model.depth"))));
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
    family.go_on = [](const PromptRequest& request) { return go_on(request, make_transformer); };
    return family;
}

}  // namespace millrace::models
