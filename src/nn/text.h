#pragma once
// Sequences as rows of tokens: embedding with positions, mean over positions, loss of tokens, greedy choice. Shapes and masks as
// in ops/text/text.h: B sequences of up to T tokens behind a prefix of P vectors, N = P + T positions, values [K,1,B*N,C].

#include <optional>
#include <string>
#include <vector>

#include "nn/dense.h"
#include "ops/text/text.h"
#include "tape/builder.h"

namespace millrace::nn {

/// Keys and values of the positions so far, for programs that write text a token at a time; layers take them in turn.
struct StepCaches {
    tensor::View position;             ///< i32 [1,1,1,1]: of the new token, from 0
    std::vector<tensor::View> layers;  ///< real [1,1,B*N,2 * width of the layer], in the order of the layers
    std::size_t taken = 0;
};

/// The sequences of a batch, in device memory.
struct Sequences {
    tensor::View ids;      ///< i32 [K,1,B,T]; a view of one member serves all with k = K and stride_k = 0
    tensor::View lengths;  ///< i32 [K,1,B,1]
    std::int32_t prefix = 0;
    StepCaches* caches = nullptr;  ///< not null: each sequence is its new token alone, which sees those before it

    [[nodiscard]] std::int32_t count() const { return lengths.rows; }
    [[nodiscard]] std::int32_t tokens() const { return ids.cols; }
    [[nodiscard]] std::int32_t positions() const { return prefix + ids.cols; }
    [[nodiscard]] std::int32_t rows() const { return count() * positions(); }  ///< of a value over positions
};

class TokenEmbedding {
public:
    TokenEmbedding() = default;
    /// Declares `<name>.tokens.weight` [vocabulary, cols] and `<name>.position.weight` [positions, cols], N(0, 0.02^2) unless
    /// given otherwise. `positions` is N of the sequences it will see.
    TokenEmbedding(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t positions, std::int32_t cols,
                   const tape::Init& init = tape::Init::normal(0.02));
    /// y [K,1,B*N,C]. `prefix` [K,1,B,P*C] stands before the tokens of each sequence; absent when P = 0. An id outside the
    /// vocabulary drops the step (state.nonfinite).
    /// In evaluation also of one token of each sequence: `position` stat [K,1,1,C] is then its row of the positions' table.
    tape::Value forward(tape::Builder& builder, const Sequences& sequences, const tape::Value& prefix = {},
                        const tensor::View& position = {}) const;
    [[nodiscard]] tape::ParameterId positions() const { return positions_; }

private:
    std::string name_;
    std::int32_t position_count_ = 0, cols_ = 0;
    tape::ParameterId tokens_ = tape::kNoParameter, positions_ = tape::kNoParameter;
};

/// Mean over the filled positions of each sequence: x [K,1,B*N,C] -> [K,1,B,C]; zeros for a sequence without any.
tape::Value masked_mean(tape::Builder& builder, const tape::Value& x, const Sequences& sequences, const std::string& name);

struct TokenLossOptions {
    double weight = 1;      ///< of this term in the step's objective
    bool as_loss = false;   ///< counts as the step's loss and rows; else its share of the objective joins state.penalty
    tensor::View tally{};   ///< stat [K,1,1,ops::kTallyColumns], optional: sums of losses, tokens, right tokens, right sequences
    tensor::View losses{};  ///< stat [K,1,B*N,1], optional, of a VocabularyHead: each position's, 0 where it predicts nothing
    std::string name = "token_cross_entropy";
};

/// weight * mean over the batch's tokens of the cross-entropy of logits [K,1,B*N,V], where position `first` + t predicts token t.
/// With a decoder behind its prefix that is first = P - 1: every position predicts the token after it. The only consumer of the
/// logits' gradient.
void token_cross_entropy(tape::Builder& builder, const tape::Value& logits, const Sequences& sequences, std::int32_t first,
                         const TokenLossOptions& options = {});

/// Appends what the token loss of that name divides by in a step that runs in parts: the tokens of all its sequences.
void total_tokens(tape::Builder& builder, const Sequences& sequences, const std::string& loss);

/// The layer that predicts tokens, with its loss in one operator that never stores logits (ops/vocabulary/vocabulary.h).
class VocabularyHead {
public:
    VocabularyHead() = default;
    /// Declares `<name>.weight` [vocabulary, cols] and `<name>.bias` [vocabulary], uniform within 1 / sqrt(cols) unless given
    /// otherwise.
    VocabularyHead(tape::Store& store, std::string name, std::int32_t vocabulary, std::int32_t cols,
                   std::optional<tape::Init> weight = std::nullopt, std::optional<tape::Init> bias = std::nullopt);
    /// As token_cross_entropy of the layer's logits for x [K,1,B*N,C]: position `first` + t of a sequence predicts token t of
    /// `targets`, whose prefix does not matter, nor does options.name. Writes the gradients of x, weight and bias at once; x may
    /// have other consumers.
    void loss(tape::Builder& builder, const tape::Value& x, const Sequences& targets, std::int32_t first,
              const TokenLossOptions& options = {}) const;
    /// As total_tokens: what loss() divides by in a step that runs in parts.
    void total(tape::Builder& builder, const Sequences& targets) const { total_tokens(builder, targets, name_); }
    /// Logits [K,1,rows,V] of x [K,1,rows,C], stored: for a few rows, such as the last positions of texts that are sampled.
    [[nodiscard]] tape::Value logits(tape::Builder& builder, const tape::Value& x) const { return linear_.forward(builder, x); }

private:
    std::string name_;
    Dense linear_;
};

/// Appends to every sequence that has room and does not end with the token `end` the likeliest next token, predicted at position
/// `first` + length. Evaluation only; ids and lengths of `sequences` are written.
void token_choose(tape::Builder& builder, const tape::Value& logits, const Sequences& sequences, std::int32_t first,
                  std::int32_t end, const std::string& name = "token_choose");

}  // namespace millrace::nn
