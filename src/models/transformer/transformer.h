#pragma once
// A stack of causal transformer layers in series, norms behind: the baseline of the tree.

#include "models/language_model.h"
#include "models/registry.h"
#include "nn/transformer.h"

namespace millrace::models {

class Transformer final : public LanguageModel {
public:
    Transformer(LanguageConfig config, std::int32_t depth) : LanguageModel(std::move(config)), depth_(depth) {}
    [[nodiscard]] std::string description() const override;
    [[nodiscard]] std::vector<std::int32_t> cached_widths() const override {
        return std::vector<std::int32_t>(static_cast<std::size_t>(depth_), language().width);
    }

private:
    base::Status declare_body(tape::Store& store) override;
    [[nodiscard]] tape::Value body(tape::Builder& builder, const tape::Value& x, const nn::Sequences& sequences) const override;

    std::int32_t depth_;
    std::vector<nn::TransformerLayer> layers_;
};

}  // namespace millrace::models
