#include "data/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/pairs/pairs.h"

namespace millrace::data {
namespace {

std::vector<std::string> sentences(std::uint32_t count) {
    std::vector<std::string> texts;
    for (std::uint32_t i = 0; i < count; ++i) {
        const TextPair pair = sentence_pair(42, i);
        texts.push_back(pair.input);
        texts.push_back(pair.target);
    }
    return texts;
}

class TokenizerTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!Tokenizer::available()) GTEST_SKIP() << "this build has no SentencePiece";
    }
};

TEST_F(TokenizerTest, SentencesSurviveTheWayThereAndBack) {
    const auto texts = sentences(300);
    const auto tokenizer = Tokenizer::train(texts, 600);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
    EXPECT_LE(tokenizer->vocabulary(), 600);
    EXPECT_GT(tokenizer->vocabulary(), 300);
    for (const std::string& text : texts) {
        std::vector<std::int32_t> ids = tokenizer->encode(text);
        for (const std::int32_t id : ids) ASSERT_TRUE(id > Tokenizer::kEnd && id < tokenizer->vocabulary()) << text;
        EXPECT_LT(ids.size(), text.size() / 2) << "words, not letters: " << text;
        EXPECT_EQ(tokenizer->decode(ids), text);
        ids.push_back(Tokenizer::kEnd);
        ids.push_back(7);
        EXPECT_EQ(tokenizer->decode(ids), text) << "nothing behind the end counts";
    }
}

TEST_F(TokenizerTest, TheSameTextsGiveTheSameBytes) {
    const auto first = Tokenizer::train(sentences(100), 200), second = Tokenizer::train(sentences(100), 200);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->bytes(), second->bytes());
    const auto other = Tokenizer::train(sentences(101), 200);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(first->bytes(), other->bytes());
    const auto again = Tokenizer::load(first->bytes(), "memory");
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->encode("The clerk camps."), first->encode("The clerk camps."));
}

TEST_F(TokenizerTest, SmallTextGivesFewerTokensThanAsked) {
    const auto tokenizer = Tokenizer::train({"a b", "b a"}, 1000);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
    EXPECT_LT(tokenizer->vocabulary(), 12);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("b b a")), "b b a");
}

TEST_F(TokenizerTest, StrangeTextIsTakenAsUnknown) {
    const auto tokenizer = Tokenizer::train(sentences(50), 150);
    ASSERT_TRUE(tokenizer.ok());
    EXPECT_TRUE(tokenizer->encode("").empty());
    EXPECT_TRUE(tokenizer->encode("  \t\n ").empty());
    for (const std::string& text : {std::string("\xff\xfe\xc3"), std::string("\xe6\xb0\xb4"), std::string("a\0b", 3)}) {
        const auto ids = tokenizer->encode(text);
        EXPECT_NE(std::count(ids.begin(), ids.end(), Tokenizer::kUnknown), 0);
    }
    const std::vector<std::int32_t> outside{-5, tokenizer->vocabulary(), 1 << 30};
    EXPECT_EQ(tokenizer->decode(outside), "");
    EXPECT_EQ(tokenizer->decode({}), "");
}

TEST_F(TokenizerTest, WhatCannotBeTrainedIsRefused) {
    EXPECT_FALSE(Tokenizer::train({}, 100).ok());
    EXPECT_FALSE(Tokenizer::train({" ", "\t"}, 100).ok());
    const auto small = Tokenizer::train(sentences(50), 10);
    ASSERT_FALSE(small.ok());
    EXPECT_NE(small.error().text().find("10 tokens"), std::string::npos) << small.error().text();
}

TEST_F(TokenizerTest, AWordWithoutEndIsRefused) {
    std::vector<std::string> texts = sentences(50);
    texts.push_back("a " + std::string(Tokenizer::kLongestWord, 'w'));
    EXPECT_TRUE(Tokenizer::train(texts, 150).ok());
    texts.back() += 'w';
    const auto refused = Tokenizer::train(texts, 150);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("16385 bytes"), std::string::npos) << refused.error().text();
}

TEST_F(TokenizerTest, DamagedBytesAreRefused) {
    const auto tokenizer = Tokenizer::train(sentences(50), 150);
    ASSERT_TRUE(tokenizer.ok());
    const std::string& bytes = tokenizer->bytes();
    EXPECT_FALSE(Tokenizer::load("", "here").ok());
    EXPECT_FALSE(Tokenizer::load("no model", "here").ok());
    for (std::size_t length = 0; length < bytes.size(); length += bytes.size() / 41 + 1) {
        const auto cut = Tokenizer::load(bytes.substr(0, length), "here");
        // Whole pieces may be missing without a trace; whatever loads must still be safe to use.
        if (cut.ok())
            EXPECT_LE(cut->vocabulary(), tokenizer->vocabulary());
        else
            EXPECT_NE(cut.error().text().find("here"), std::string::npos);
    }
}

}  // namespace
}  // namespace millrace::data
