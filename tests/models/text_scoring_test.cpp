#include "models/energy_flow/scoring.h"

#include <gtest/gtest.h>

namespace millrace::models {
namespace {

TEST(WordOverlap, CountsCommonWordsOfBoth) {
    EXPECT_EQ(word_overlap("The mill stood.", "the mill stood"), 1) << "letter case and punctuation do not count";
    EXPECT_EQ(word_overlap("a b c d", "c d e f"), 0.5);
    EXPECT_EQ(word_overlap("a b", "c d"), 0);
    EXPECT_EQ(word_overlap("the the the", "the"), 0.5) << "a word counts as often as both have it";
    EXPECT_EQ(word_overlap("", "a"), 0);
    EXPECT_EQ(word_overlap(" .", ""), 1);
}

}  // namespace
}  // namespace millrace::models
