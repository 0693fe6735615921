#pragma once
// The text bridge: from a sentence's tokens to energies on the middle plane, and from a surface to a sentence.
//
// It learns from the model and never the other way: `encode` is trained to meet the mapper's energies, `decode` to tell the
// target's tokens from the surface that the cube produced, and no gradient leaves the bridge, neither towards the mapper nor
// towards the cube. B sentences, S cells, V tokens, P = kPrefix vectors that stand before a decoded sentence.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch_source.h"
#include "data/text/tokenizer.h"
#include "models/energy_flow/config.h"
#include "nn/transformer.h"
#include "ops/text/text.h"

namespace millrace::models {

/// What the bridge must know of the texts.
struct TextShape {
    std::shared_ptr<const data::Tokenizer> tokenizer;  ///< null: no texts
    std::int32_t input_tokens = 0, target_tokens = 0;
};

class TextBridge {
public:
    static constexpr std::int32_t kPrefix = 4;
    // Names in a checkpoint: the tokenizer's bytes, and the tables whose rows say how long sentences may be.
    static constexpr const char* kTokenizer = "text.tokenizer";
    static constexpr const char* kEncoderPositions = "text.encoder.embedding.position.weight";
    static constexpr const char* kDecoderPositions = "text.decoder.embedding.position.weight";
    /// Every layer's name begins so.
    static constexpr const char* kLayers = "text.";

    TextBridge() = default;
    /// Declares `text.encoder.*` and `text.decoder.*`.
    TextBridge(tape::Store& store, const EnergyFlowConfig& config, const TextShape& texts);

    /// Energies real [K,1,B,S] in (-1, 1).
    tape::Value encode(tape::Builder& builder, const nn::Sequences& inputs) const;

    /// The two losses of a micro-batch whose energies and surface are there already, in a training program.
    void learn(tape::Builder& builder, data::BatchSource& source, data::Part part, const tensor::View& energies,
               const tensor::View& surface) const;

    /// As Model::append_loss_totals.
    void append_loss_total(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const;

    /// What an evaluation program leaves: kept until its end.
    struct Figures {
        tensor::View encoded;           ///< stat [K,1,B,S]
        tensor::View tally;             ///< stat [K,1,1,ops::kTallyColumns], of the targets' tokens predicted one by one
        tensor::View targets, lengths;  ///< i32 [K,1,B,T], [K,1,B,1]
        nn::Sequences answers;          ///< what decode() says
    };
    /// In an evaluation program; closes a section.
    Figures measure(tape::Builder& builder, data::BatchSource& source, data::Part part, const tensor::View& surface) const;

    /// The likeliest token after the other, for all sentences at once: closes the section before it and one of its own, which
    /// runs T times. Evaluation programs only.
    nn::Sequences decode(tape::Builder& builder, const tensor::View& surface) const;

private:
    [[nodiscard]] nn::Sequences gather(tape::Builder& builder, data::BatchSource& source, data::Part part, bool target,
                                       std::int32_t rows) const;
    [[nodiscard]] tape::Value prefix_of(tape::Builder& builder, const tensor::View& surface) const;
    /// Logits real [K,1,B*N,V]: position P - 1 + t predicts token t.
    [[nodiscard]] tape::Value token_logits(tape::Builder& builder, const tape::Value& prefix,
                                           const nn::Sequences& sentences) const;

    TextBridgeConfig config_;
    std::int32_t target_tokens_ = 0;
    nn::TokenEmbedding in_, out_;
    std::vector<nn::TransformerLayer> encoder_, decoder_;
    nn::LayerNorm encoder_norm_, decoder_norm_;
    nn::Dense surface_, prefix_, logits_;
};

}  // namespace millrace::models
