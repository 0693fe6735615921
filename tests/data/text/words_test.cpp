#include "data/text/tokenizer.h"

#include <gtest/gtest.h>

namespace millrace::data {
namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer words_of(std::string_view text, std::int32_t vocabulary) {
    auto made = Tokenizer::count_words(text, vocabulary);
    EXPECT_TRUE(made.ok()) << made.error().text();
    return std::move(made).value();
}

TEST(Words, MostFrequentComeFirstAndTiesByAppearance) {
    // c and a stand there three times, c first; then d, b and e once each, in this order.
    const Tokenizer words = words_of("c d a\nA b\tc  a e C", 100);
    EXPECT_EQ(words.encode("c a d b e"), (Ids{4, 5, 6, 7, 8}));
    EXPECT_EQ(words.decode(Ids{4, 5, 6, 7, 8}), "c a d b e");
}

TEST(Words, TheVocabularyIsWhatWasAskedFor) {
    const Tokenizer words = words_of("b b a", 100);
    EXPECT_EQ(words.vocabulary(), 100);
    EXPECT_EQ(words.unknown(), 1);
    EXPECT_EQ(words.end(), 3);
    const Tokenizer few = words_of("c c c b b a", 6);
    EXPECT_EQ(few.vocabulary(), 6);
    EXPECT_EQ(few.encode("a b c"), (Ids{1, 5, 4})) << "the rarest has no number left";
}

TEST(Words, AsciiLettersLoseTheirCaseAndOthersKeepIt) {
    const Tokenizer words = words_of(
        "stra\xc3\x9f"
        "e \xc3\x84pfel don't U.S. ,",
        50);
    EXPECT_EQ(words.encode("STRA\xc3\x9f"
                           "E \xc3\x84PFEL DON'T u.s. ,"),
              (Ids{4, 5, 6, 7, 8}));
    EXPECT_EQ(words.encode("\xc3\xa4pfel"), Ids{1});
}

TEST(Words, SpecialNamesInATextAreUnknown) {
    // WikiText has <unk> where a word was left out.
    const Tokenizer words = words_of("<unk> <pad> a <UNK> <bos> <eos>", 50);
    EXPECT_EQ(words.encode("<pad> <unk> <bos> <eos> a"), (Ids{1, 1, 1, 1, 4}));
    EXPECT_EQ(words.decode(Ids{2, 4, 1, 3, 4}), "<bos> a <unk>") << "nothing behind the end counts";
    EXPECT_EQ(words.decode(Ids{-1, 4, 49, 50, 1 << 30}), "a");
}

TEST(Words, AnyWhiteSpaceCuts) {
    const Tokenizer words = words_of("a b", 10);
    EXPECT_EQ(words.encode(" a\r\n\n\tb\v\fa "), (Ids{4, 5, 4}));
    EXPECT_TRUE(words.encode(" \t\n").empty());
}

TEST(Words, BytesBringThemBack) {
    const Tokenizer words = words_of("the cat saw the \xe6\xb0\xb4", 77);
    const auto again = Tokenizer::load(words.bytes(), "checkpoint");
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_EQ(again->bytes(), words.bytes());
    EXPECT_EQ(again->vocabulary(), 77);
    EXPECT_EQ(again->encode("The \xe6\xb0\xb4 dog saw"), words.encode("The \xe6\xb0\xb4 dog saw"));
    EXPECT_EQ(words.encode("The \xe6\xb0\xb4 dog saw"), (Ids{4, 7, 1, 6}));
}

TEST(Words, DamagedBytesAreRefused) {
    const std::string head = "millrace-words 1 ";
    for (const std::string& bytes : {head, head + "10", head + "10\na", head + "x\na\n", head + "4\n", head + "-9\na\n",
                                     head + "99999999999\na\n", head + "20000000\na\n", head + "10\na\na\n", head + "10\na\n\n",
                                     head + "10\n<unk>\n", head + "10\na b\n", head + "5\na\nb\n", head + "10 \na\n"}) {
        const auto loaded = Tokenizer::load(bytes, "here");
        ASSERT_FALSE(loaded.ok()) << bytes;
        EXPECT_EQ(loaded.error().place, "here") << bytes;
    }
    EXPECT_TRUE(Tokenizer::load(head + "5\na\n", "here").ok());
}

TEST(Words, AbsurdVocabulariesAndEmptyTextsAreRefused) {
    for (const std::int32_t vocabulary : {-1, 0, 4, kMostWords + 1}) {
        const auto made = Tokenizer::count_words("a", vocabulary);
        ASSERT_FALSE(made.ok()) << vocabulary;
        EXPECT_NE(made.error().message.find(std::to_string(vocabulary)), std::string::npos) << made.error().text();
    }
    EXPECT_FALSE(Tokenizer::count_words(" \n", 100).ok());
    EXPECT_TRUE(Tokenizer::count_words("a", 5).ok());
}

}  // namespace
}  // namespace millrace::data
