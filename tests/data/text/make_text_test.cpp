
#include <algorithm>
#include <set>

#include "data/makers.h"
#include "data/text/text_files.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

std::size_t words_in(const std::string& text) { return Tokenizer::count_words(text, 10000)->encode(text).size(); }

TEST(MakeText, WritesThreeTextsWithoutACommonLine) {
    const test::TemporaryFolder folder;
    const auto made = make_text(folder / "deep/er", {5000, 7});
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(*made, MakeOutcome::kWritten);
    const auto files = read_text_files(folder / "deep/er");
    ASSERT_TRUE(files.ok()) << files.error().text();
    const std::size_t wanted[] = {5000, 500, 500};
    std::multiset<std::string> lines;
    for (std::size_t part = 0; part < kPartCount; ++part) {
        EXPECT_GE(words_in(files->texts[part]), wanted[part]);
        EXPECT_LT(words_in(files->texts[part]), wanted[part] + 40);
        for (std::size_t at = 0, end = 0; (end = files->texts[part].find('\n', at)) != std::string::npos; at = end + 1)
            lines.insert(files->texts[part].substr(at, end - at));
    }
    EXPECT_EQ(std::set(lines.begin(), lines.end()).size(), lines.size());
}

TEST(MakeText, MarksStandApartAndWordsRecur) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_text(folder.path(), {20000, 7}).ok());
    const auto files = read_text_files(folder.path());
    ASSERT_TRUE(files.ok());
    const auto set = number_texts(*files, std::make_shared<const Tokenizer>(word_tokenizer(*files, 2000).value()), 2000, 64);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_LT(set->statistics[1].unknown_share(), 0.01) << "what is held out is made of known words";
    EXPECT_GT(set->statistics[1].unigram_perplexity, 50);
    EXPECT_EQ(set->tokenizer->encode(".").front(), 5) << "behind `the`";
}

TEST(MakeText, SameTextIsLeftAloneAndOthersAreRefused) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_text(folder.path(), {300, 7}).ok());
    auto again = make_text(folder.path(), {300, 7});
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, MakeOutcome::kAlreadyThere);
    EXPECT_FALSE(make_text(folder.path(), {300, 8}).ok());
    EXPECT_FALSE(make_text(folder.path(), {400, 7}).ok());
    std::filesystem::remove(folder / "valid.txt");
    again = make_text(folder.path(), {300, 7});
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, MakeOutcome::kWritten) << "an interrupted set is completed";
    EXPECT_TRUE(read_text_files(folder.path()).ok());
}

TEST(MakeText, TheGrammarLastsForTheMostWords) {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(make_text(folder / "most", {kMostMadeWords, 3}).ok());
    EXPECT_FALSE(make_text(folder / "more", {kMostMadeWords + 1, 3}).ok());
    EXPECT_FALSE(make_text(folder / "none", {0, 3}).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

TEST(MakeText, IsOneOfTheMakers) {
    const test::TemporaryFolder folder;
    const auto all = makers();
    const auto maker = std::ranges::find(all, "text", &Maker::name);
    ASSERT_NE(maker, all.end());
    CommandOptions options = maker->options;
    options[0].value = std::uint32_t{300};
    const auto made = maker->make(folder.path().string(), 7, options, {});
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(*made, folder.path().string() + " written: 300 words to train on, seed 7");
}

}  // namespace
}  // namespace millrace::data
