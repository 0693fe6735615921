#include "data/pairs/pairs.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace millrace::data {
namespace {

TEST(SentenceGrammar, NoStatementAndNoConsequenceRepeats) {
    std::set<std::string> inputs, targets;
    const std::uint32_t limit = sentence_pair_limit();
    EXPECT_GE(limit, 100'000u);
    for (std::uint32_t index = 0; index < limit; ++index) {
        const TextPair pair = sentence_pair(7, index);
        ASSERT_TRUE(inputs.insert(pair.input).second) << pair.input;
        ASSERT_TRUE(targets.insert(pair.target).second) << pair.target;
    }
}

TEST(SentenceGrammar, SentencesLookLikeSentences) {
    std::set<std::string> words;
    for (std::uint32_t index = 0; index < 5000; ++index) {
        const TextPair pair = sentence_pair(42, index);
        for (const std::string& text : {pair.input, pair.target}) {
            ASSERT_TRUE(text.front() >= 'A' && text.front() <= 'Z') << text;
            ASSERT_EQ(text.back(), '.');
            ASSERT_EQ(text.find_first_of("$@"), std::string::npos) << text;
            ASSERT_EQ(text.find("  "), std::string::npos) << text;
            std::istringstream stream(text);
            int count = 0;
            for (std::string word; stream >> word; ++count) words.insert(word);
            ASSERT_GE(count, 6) << text;
            ASSERT_LE(count, 20) << text;
        }
    }
    EXPECT_GT(words.size(), 300u);
    EXPECT_LT(words.size(), 1000u);
}

TEST(SentenceGrammar, SeedsDrawOtherOrdersAndNothingElseDoes) {
    int same = 0;
    for (std::uint32_t index = 0; index < 1000; ++index) {
        EXPECT_EQ(sentence_pair(42, index), sentence_pair(42, index));
        same += sentence_pair(42, index) == sentence_pair(43, index) ? 1 : 0;
    }
    EXPECT_LT(same, 5);
    // The same on every machine: two of the set that ships with the documentation.
    EXPECT_EQ(sentence_pair(42, 0).input, "The shepherd broke a window in the market at sunrise.");
    EXPECT_EQ(sentence_pair(42, 2).target, "Now the builder cooks a soup and pays fourteen coins to the professor.");
}

}  // namespace
}  // namespace millrace::data
