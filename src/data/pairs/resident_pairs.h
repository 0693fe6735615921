#pragma once
// A set of pairs whose vectors live in device memory. Shuffling and gathering happen there, inside the step.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/fields.h"
#include "data/pairs/pairs.h"
#include "data/text/tokenizer.h"

namespace millrace::data {

/// One sentence of every pair: row i of `ids` holds lengths[i] numbers, zeros behind them.
struct TokenTable {
    std::int32_t tokens = 0;                 ///< width of a row; 0: no table
    std::vector<std::int32_t> ids, lengths;  ///< [count, tokens], [count]
    std::int32_t cut = 0;                    ///< sentences that were longer and lost their end
};
using PairTokens = std::array<TokenTable, 2>;  ///< inputs, targets

/// Both texts of the pairs to train on, in the order of the split. Nothing held out is among them.
std::vector<std::string> training_texts(const PairSet& set);

/// Targets get Tokenizer::kEnd behind them. Rows are as wide as the longest sentence, at most `most`; where `stored` says widths
/// of input_tokens and target_tokens, those are taken. Longer sentences are cut, their end mark with them.
PairTokens tokenize(const PairSet& set, const Tokenizer& tokenizer, std::int32_t most, const StoredData& stored = {});

class PairSource final : public ResidentSource {
public:
    /// Fields are vector and goal. `tokens`: the set's sentences as numbers, where the model reads them: then also input_tokens,
    /// input_length, target_tokens and target_length. Pairs have no test part.
    explicit PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens = {},
                        const std::shared_ptr<const Tokenizer>& tokenizer = {});

    [[nodiscard]] std::int32_t dimensions() const { return static_cast<std::int32_t>(set_->dimensions); }
    [[nodiscard]] const PairSet& set() const { return *set_; }
    [[nodiscard]] std::vector<std::string> texts_at(Part part, std::int32_t position) const override;  ///< input, target

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    /// Refuses a set without training pairs.
    base::Status declare_tables(tape::Store& store) override;

    std::shared_ptr<const PairSet> set_;
    PairTokens tokens_;
    std::vector<tensor::View> tables_;             ///< by field, [1,1,count,width]
    std::array<tensor::View, kPartCount> subset_;  ///< order_ on the device
};

}  // namespace millrace::data
