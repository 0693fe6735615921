#pragma once
// A model that predicts the next token at every position of a window: embedding, a body of the family's own, norm, vocabulary.
// Such models write text: a prompt is read token by token, then tokens are drawn, each seeing the keys and values that those
// before it left behind.

#include <memory>
#include <string>
#include <vector>

#include "data/text/tokenizer.h"
#include "models/keys.h"
#include "models/registry.h"
#include "nn/layer_norm.h"
#include "nn/text.h"

namespace millrace::models {

struct LanguageConfig {
    std::int32_t vocabulary = 10000, length = 64;  ///< of a window, in tokens that are predicted
    std::int32_t width = 128, heads = 4, inner = 256;
    float dropout = 0;
    std::shared_ptr<const data::Tokenizer> tokenizer = {};
    std::vector<data::TextStatistics> statistics = {};  ///< of the text, by part; empty where it is not known
};

class LanguageModel : public Model {
public:
    explicit LanguageModel(LanguageConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) final;
    [[nodiscard]] data::Fields wants() const final;  ///< tokens [length + 1] and length
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    /// What the vocabulary reads at every position: [K,1,windows * length,width].
    tape::Value hidden(tape::Builder& builder, const nn::Sequences& seen);
    void append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const final;
    [[nodiscard]] bool classifies() const final { return false; }
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part part, int member) const override;
    [[nodiscard]] std::vector<Attachment> attachments() const final;  ///< the tokenizer

    /// Logits [1,1,1,vocabulary] of what follows one token: `token` i32 [1,1,1,1], `position_row` stat [1,1,1,width] its row of
    /// the positions' table. Evaluation only, one member.
    tape::Value build_step(tape::Builder& builder, const nn::Sequences& token, const tensor::View& position_row);
    /// Width of the layers that want a cache, in their order.
    [[nodiscard]] virtual std::vector<std::int32_t> cached_widths() const = 0;
    /// [length][width], of one member.
    [[nodiscard]] std::vector<float> position_table(tape::Store& store, int member) const {
        return store.read_parameter(embedding_.positions(), 0, member);
    }

    [[nodiscard]] const LanguageConfig& language() const { return config_; }

    static constexpr const char* kTokenizer = "text.tokenizer";  ///< in a checkpoint

protected:
    virtual base::Status declare_body(tape::Store& store) = 0;
    /// x [K,1,B*N,width] -> y of the same shape, no position seeing one behind it.
    [[nodiscard]] virtual tape::Value body(tape::Builder& builder, const tape::Value& x,
                                           const nn::Sequences& sequences) const = 0;

private:
    LanguageConfig config_;
    nn::TokenEmbedding embedding_;
    nn::LayerNorm norm_;
    nn::VocabularyHead head_;
};

/// What every family of language models has in its recipe.
void language_keys(Keys& keys, LanguageConfig& config);
/// The shape of the data's windows.
void take_fields(LanguageConfig& config, const data::Fields& fields);
/// Refuses widths that heads do not divide.
base::Status check(const LanguageConfig& config);
/// What every family of language models has in common: data, usual fields, defaults outside [model], figures.
Family language_family(std::string name);

/// A window that is full is begun again with the second half of its tokens.
base::Result<PromptReport> go_on(const PromptRequest& request);

/// The tokenizer and the length of the windows of a checkpoint.
base::Result<data::StoredData> stored_language(const io::LoadedCheckpoint& checkpoint);

/// A token drawn from logits at a temperature (0: the likeliest), among the `top_k` likeliest (0: all) from `first` on: marks
/// below it are not drawn. `uniform` in [0, 1) decides.
std::int32_t draw_token(const std::vector<double>& logits, double temperature, std::int32_t top_k, std::int32_t first,
                        double uniform);

}  // namespace millrace::models
