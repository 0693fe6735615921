#pragma once
// The sentences of a set of pairs as numbers.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace millrace::data
