#include "data/pairs/pair_tokens.h"

#include <algorithm>

namespace millrace::data {
namespace {

static_assert(kPairLineCap <= Tokenizer::kLongestText, "every sentence of a pair is trained on");

TokenTable tabulate(const std::vector<std::vector<std::int32_t>>& sentences, std::int32_t most, std::int32_t width) {
    TokenTable table;
    table.tokens = width;
    if (width == 0) {
        std::size_t longest = 1;
        for (const auto& sentence : sentences) longest = std::max(longest, sentence.size());
        table.tokens = static_cast<std::int32_t>(std::min(longest, static_cast<std::size_t>(most)));
    }
    const auto columns = static_cast<std::size_t>(table.tokens);
    table.ids.assign(sentences.size() * columns, 0);
    for (std::size_t i = 0; i < sentences.size(); ++i) {
        const std::size_t length = std::min(sentences[i].size(), columns);
        table.cut += sentences[i].size() > columns ? 1 : 0;
        std::copy_n(sentences[i].begin(), length, table.ids.begin() + static_cast<std::ptrdiff_t>(i * columns));
        table.lengths.push_back(static_cast<std::int32_t>(length));
    }
    return table;
}

}  // namespace

std::vector<std::string> training_texts(const PairSet& set) {
    std::vector<std::string> texts;
    texts.reserve(2 * set.split.training.size());
    for (const auto row : set.split.training) {
        texts.push_back(set.texts[row].input);
        texts.push_back(set.texts[row].target);
    }
    return texts;
}

PairTokens tokenize(const PairSet& set, const Tokenizer& tokenizer, std::int32_t most, const StoredData& stored) {
    std::vector<std::vector<std::int32_t>> inputs, targets;
    inputs.reserve(set.texts.size());
    targets.reserve(set.texts.size());
    for (const TextPair& pair : set.texts) {
        inputs.push_back(tokenizer.encode(pair.input));
        targets.push_back(tokenizer.encode(pair.target));
        targets.back().push_back(Tokenizer::kEnd);
    }
    const auto width = [&](const char* field) {
        const auto at = stored.widths.find(field);
        return at == stored.widths.end() ? 0 : at->second;
    };
    return {tabulate(inputs, most, width("input_tokens")), tabulate(targets, most, width("target_tokens"))};
}

}  // namespace millrace::data
