#include "data/pairs/resident_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace::data {
namespace {

class PairTokensTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!Tokenizer::available()) GTEST_SKIP() << "this build has no SentencePiece";
        for (std::uint32_t i = 0; i < 40; ++i) set_.texts.push_back(sentence_pair(42, i));
        set_.count = 40;
        split_samples(set_.parts, 0, 40, 0.25, 0, 3);
    }
    PairSet set_;
};

TEST_F(PairTokensTest, NothingHeldOutIsTrainedOn) {
    const auto texts = training_texts(set_);
    EXPECT_EQ(texts.size(), 60u);
    for (const std::int32_t row : set_.part(Part::validation))
        EXPECT_EQ(std::count(texts.begin(), texts.end(), set_.texts[static_cast<std::size_t>(row)].input), 0);
}

TEST_F(PairTokensTest, RowsAreAsWideAsTheLongestSentence) {
    const auto tokenizer = Tokenizer::train(training_texts(set_), 200);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
    const PairTokens tokens = tokenize(set_, *tokenizer, 128);
    for (const TokenTable& table : tokens) {
        EXPECT_EQ(*std::max_element(table.lengths.begin(), table.lengths.end()), table.tokens);
        EXPECT_EQ(table.ids.size(), 40u * static_cast<std::size_t>(table.tokens));
        EXPECT_EQ(table.cut, 0);
    }
    const auto width = static_cast<std::size_t>(tokens[1].tokens), length = static_cast<std::size_t>(tokens[1].lengths[7]);
    const std::span row(tokens[1].ids.data() + 7 * width, width);
    EXPECT_EQ(row[length - 1], Tokenizer::kEnd);
    EXPECT_EQ(tokenizer->decode(row), set_.texts[7].target);
    EXPECT_EQ(std::count(tokens[0].ids.begin(), tokens[0].ids.end(), Tokenizer::kEnd), 0) << "inputs need no end";
}

TEST_F(PairTokensTest, LongerSentencesAreCut) {
    const auto tokenizer = Tokenizer::train(training_texts(set_), 200);
    ASSERT_TRUE(tokenizer.ok());
    const PairTokens tokens = tokenize(set_, *tokenizer, 5);
    EXPECT_EQ(tokens[0].tokens, 5);
    EXPECT_EQ(tokens[0].cut, 40);
    EXPECT_EQ(tokens[0].lengths[3], 5);
    const PairTokens given = tokenize(set_, *tokenizer, 5, {nullptr, {{"input_tokens", 9}, {"target_tokens", 300}}});
    EXPECT_EQ(given[0].tokens, 9);
    EXPECT_EQ(given[1].tokens, 300);
    EXPECT_EQ(given[1].cut, 0);
}

}  // namespace
}  // namespace millrace::data
