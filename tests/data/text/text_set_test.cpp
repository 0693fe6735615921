// Folders of texts: what they become, and what is refused with which words.

#include "data/text/text_set.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "captured_log.h"
#include "data/load.h"
#include "data/text/text_files.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

class TextFolder : public ::testing::Test {
protected:
    void write(const std::string& train, const std::string& valid = "a b", const std::string& test = "b a") const {
        testing::write_texts(folder_.path(), train, valid, test);
    }
    [[nodiscard]] Result<TextSet> load(std::int32_t vocabulary, std::int32_t length = 1) const {
        MILLRACE_LET(files, read_text_files(folder_.path()));
        MILLRACE_LET(words, word_tokenizer(files, vocabulary));
        return number_texts(files, std::make_shared<const Tokenizer>(std::move(words)), vocabulary, length);
    }
    [[nodiscard]] std::string refusal(std::int32_t vocabulary = 100, std::int32_t length = 1) const {
        const auto loaded = load(vocabulary, length);
        EXPECT_FALSE(loaded.ok());
        return loaded.ok() ? "" : loaded.error().text();
    }
    [[nodiscard]] base::Recipe recipe(const std::vector<std::string>& settings) const {
        base::Schema schema;
        add_data_keys(schema, DataKind::text);
        schema.text("model.name", "reader", "");
        auto parsed = base::Recipe::parse("data.path = \"" + folder_.path().string() + "\"\n", "r.toml", schema, {settings, {}});
        EXPECT_TRUE(parsed.ok()) << parsed.error().text();
        return std::move(parsed).value();
    }
    test::TemporaryFolder folder_;
};

TEST_F(TextFolder, ZeroBytesAreTold) {
    write(std::string("a\0 b\0 a\0 b\0", 11));
    const test::CapturedLog log;
    ASSERT_TRUE(load(8).ok());
    EXPECT_NE(log.text().find("holds 4 zero bytes"), std::string::npos) << log.text();
    EXPECT_EQ(log.lines().size(), 1u) << "of the file that has them";
}

TEST_F(TextFolder, WordsComeFromTheTrainingTextAlone) {
    write("a b a\nc\n", "A b d d\n",
          "\xef\xbb\xbf"
          "c e");
    const auto set = load(8);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->tokens(Part::train), (std::vector<std::int32_t>{4, 5, 4, 6}));
    EXPECT_EQ(set->tokens(Part::validation), (std::vector<std::int32_t>{4, 5, 1, 1}));
    EXPECT_EQ(set->tokens(Part::test), (std::vector<std::int32_t>{6, 1})) << "a byte order mark is no letter";
    EXPECT_EQ(set->statistics[0].unknown, 0);
    EXPECT_EQ(set->statistics[1].tokens, 4);
    EXPECT_EQ(set->statistics[1].unknown, 2);
    EXPECT_EQ(set->statistics[1].unknown_share(), 0.5);
}

TEST_F(TextFolder, UnigramPerplexityIsThatOfTheSmoothedFrequencies) {
    write("a b a c", "c a b x", "a a");
    const auto set = load(8);
    ASSERT_TRUE(set.ok()) << set.error().text();
    // Of 4 tokens and a vocabulary of 8: a (2 + 1) / 12, b (1 + 1) / 12, unknown 1 / 12. The first token is nobody's target.
    EXPECT_NEAR(set->statistics[1].unigram_perplexity, std::cbrt(12.0 / 3 * 12 / 2 * 12 / 1), 1e-12);
    EXPECT_NEAR(set->statistics[2].unigram_perplexity, 12.0 / 3, 1e-12);
    EXPECT_NEAR(set->statistics[0].unigram_perplexity, std::cbrt(12.0 / 2 * 12 / 3 * 12 / 2), 1e-12);
}

TEST_F(TextFolder, AUniformTextIsAsPerplexingAsItHasWords) {
    std::string text;
    for (int turn = 0; turn < 5000; ++turn)
        for (const char* word : {"a ", "b ", "c ", "d "}) text += word;
    write(text, text, "a b c d");
    const auto set = load(8);
    ASSERT_TRUE(set.ok());
    EXPECT_NEAR(set->statistics[1].unigram_perplexity, 4, 0.01);
}

TEST_F(TextFolder, MissingAndEmptyFilesAreNamed) {
    EXPECT_NE(refusal().find("train.txt: is missing"), std::string::npos) << refusal();
    write("a b c");
    std::filesystem::remove(folder_ / "test.txt");
    EXPECT_NE(refusal().find("test.txt: is missing; a text has train.txt, valid.txt, test.txt"), std::string::npos) << refusal();
    write("a b c", " \n\t");
    EXPECT_NE(refusal().find("valid.txt: holds no word"), std::string::npos) << refusal();
    write("");
    EXPECT_NE(refusal().find("train.txt: holds no word"), std::string::npos) << refusal();
    const auto nowhere = read_text_files(folder_ / "nowhere");
    ASSERT_FALSE(nowhere.ok());
    EXPECT_NE(nowhere.error().text().find("millrace data make text"), std::string::npos);
    std::filesystem::remove(folder_ / "train.txt");
    std::filesystem::create_directory(folder_ / "train.txt");
    EXPECT_NE(refusal().find("train.txt"), std::string::npos);
}

TEST_F(TextFolder, BrokenUtf8IsNamedWithItsLine) {
    write("a b\nc \xc3\xa4\nd \xc3 e\n");
    EXPECT_NE(refusal().find("train.txt:3: is not UTF-8: byte 0xc3"), std::string::npos) << refusal();
    write("a b c", "\xff");
    EXPECT_NE(refusal().find("valid.txt:1: is not UTF-8: byte 0xff"), std::string::npos) << refusal();
}

TEST_F(TextFolder, OneLongLineTakesNoLongerThanManyLines) {
    const auto words = std::make_shared<const Tokenizer>(Tokenizer::count_words("a b a b", 8).value());
    // White space alone, so that cutting it is most of the work.
    const auto seconds = [&](char end_of_line) {
        std::string text(std::size_t{32} << 20, ' ');
        for (std::size_t i = 1000; i < text.size(); i += 1000) text[i] = end_of_line;
        text.replace(0, 3, "a b");
        const TextFiles files{folder_.path(), {text, "", ""}};
        const std::clock_t begin = std::clock();
        const auto set = number_texts(files, words, 8, 1);
        EXPECT_TRUE(set.ok() && set->tokens(Part::train).size() == 2);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    EXPECT_LT(std::min(seconds(' '), seconds(' ')), 4 * std::max(seconds('\n'), seconds('\n')));
}

TEST_F(TextFolder, TextsShorterThanTheirWindowsAreRefused) {
    write("a b c d e f g h i");
    EXPECT_NE(refusal(100, 5).find("train.txt: has 9 tokens; windows of data.length = 5 need 10, or data.length = 4"),
              std::string::npos)
        << refusal(100, 5);
    EXPECT_TRUE(load(100, 4).ok());
    write("a b c d", "a");
    EXPECT_NE(refusal(100, 2).find("valid.txt: has 1 tokens"), std::string::npos) << refusal(100, 2);
}

TEST_F(TextFolder, ATokenizerOfMoreTokensIsRefused) {
    write("a b c d");
    const auto files = read_text_files(folder_.path());
    ASSERT_TRUE(files.ok());
    const auto words = std::make_shared<const Tokenizer>(Tokenizer::count_words("a b", 50).value());
    EXPECT_FALSE(number_texts(*files, words, 49, 1).ok());
    const auto set = number_texts(*files, words, 60, 1);
    ASSERT_TRUE(set.ok());
    EXPECT_EQ(set->vocabulary, 60);
    EXPECT_EQ(set->tokens(Part::train), (std::vector<std::int32_t>{4, 5, 1, 1}));
}

TEST_F(TextFolder, ARecipeLoadsIt) {
    write("a b c d e f g h i j k", "a b c d e f", "k x");
    const auto loaded = load_data(recipe({"data.length=3", "data.vocabulary=30"}), DataKind::text, "", true);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->identity.name, folder_.path().filename().string());
    EXPECT_EQ(loaded->identity.train, 2);
    EXPECT_EQ(loaded->identity.validation, 2);
    EXPECT_EQ(loaded->identity.test, 1);
    const Fields& fields = loaded->source->fields();
    EXPECT_EQ(text_of(fields), "tokens: 4 integer below 30, length: 1 integer below 4");
    ASSERT_NE(fields[0].tokenizer, nullptr);
    ASSERT_EQ(fields[0].statistics.size(), 3u);
    EXPECT_EQ(fields[0].statistics[2].unknown, 1);
    const auto notes = loaded->source->notes();
    ASSERT_EQ(notes.size(), 3u);
    EXPECT_TRUE(notes[2].starts_with("test: 2 tokens, 50.00 % unknown, unigram perplexity 41.0")) << notes[2];

    write("a b c d e f g h i j k", "a b c d e f", "k y");
    const auto same = load_data(recipe({"data.length=3", "data.vocabulary=30"}), DataKind::text, "", true);
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(same->identity, loaded->identity) << "another unknown word is the same token";
    write("a b c d e f g h i k j", "a b c d e f", "k x");
    const auto other = load_data(recipe({"data.length=3", "data.vocabulary=30"}), DataKind::text, "", true);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other->identity.checksum, loaded->identity.checksum);
}

TEST_F(TextFolder, AStoredTokenizerIsKept) {
    write("b b a a b b", "a b", "a b");
    StoredData stored;
    stored.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::load("millrace-words 1 30\na\nb\n", "").value());
    const auto loaded = load_data(recipe({"data.length=3", "data.vocabulary=30"}), DataKind::text, "", true, stored);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->source->fields()[0].tokenizer->encode("a b"), (std::vector<std::int32_t>{4, 5}));
    const auto anew = load_data(recipe({"data.length=3", "data.vocabulary=30"}), DataKind::text, "", true);
    ASSERT_TRUE(anew.ok());
    EXPECT_EQ(anew->source->fields()[0].tokenizer->encode("a b"), (std::vector<std::int32_t>{5, 4}));
}

TEST_F(TextFolder, FoldersOfAnotherKindAreNamed) {
    ASSERT_TRUE(io::write_atomically(folder_ / "pairs.safetensors", "x").ok());
    const auto loaded = load_data(recipe({}), DataKind::text, "", true);
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.error().text().find("holds pairs of sentences, but reader is trained on text; `millrace data make text"),
              std::string::npos)
        << loaded.error().text();
}

TEST_F(TextFolder, SentencePieceCutsWordsIntoParts) {
    if (!Tokenizer::available()) GTEST_SKIP() << "this build has no SentencePiece";
    std::string text;
    for (int line = 0; line < 40; ++line) text += "walking talking walked talked walks talks\n";
    text += std::string(200000, 'w') + "\n";  // longer than SentencePiece takes at once
    write(text, "walking walker", "talker");
    const auto loaded =
        load_data(recipe({"data.length=3", "data.vocabulary=400", "data.tokenizer=sentencepiece"}), DataKind::text, "", true);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    const Field& tokens = loaded->source->fields()[0];
    EXPECT_EQ(tokens.limit, 400) << "what the recipe asks for, not what the text gave";
    EXPECT_LT(tokens.tokenizer->vocabulary(), 400);
    EXPECT_GT(tokens.statistics[1].tokens, 2);
    EXPECT_EQ(loaded->source->texts_at(Part::test, 0).front().substr(0, 2), "ta");
    const auto small =
        load_data(recipe({"data.length=3", "data.vocabulary=5", "data.tokenizer=sentencepiece"}), DataKind::text, "", true);
    ASSERT_FALSE(small.ok());
    EXPECT_NE(small.error().text().find("data.vocabulary"), std::string::npos) << small.error().text();
}

TEST_F(TextFolder, AbsurdKeysAreRefused) {
    base::Schema schema;
    add_data_keys(schema, DataKind::text);
    for (const char* setting : {"data.vocabulary=4", "data.vocabulary=99999999", "data.length=0", "data.tokenizer=bytes"})
        EXPECT_FALSE(base::Recipe::parse("", "r.toml", schema, {{setting}, {}}).ok()) << setting;
}

TEST_F(TextFolder, DomainsShareAVocabulary) {
    testing::write_texts(folder_ / "one", "a b a b c c c a b d", "a d", "c c x");
    testing::write_texts(folder_ / "two", "x y x y x y", "x a", "y y");
    const auto with = [&](std::vector<std::string> settings) {
        settings.insert(settings.begin(), {"data.domains=one,two", "data.vocabulary=9", "data.length=3"});
        base::Schema schema;
        add_data_keys(schema, DataKind::text);
        schema.text("model.name", "reader", "");
        schema.integer("train.epochs", 4, "");
        return base::Recipe::parse("data.path = \"" + folder_.path().string() + "\"\n", "r.toml", schema, {settings, {}}).value();
    };
    const auto refused = [&](std::vector<std::string> settings) {
        const auto loaded = load_data(with(std::move(settings)), DataKind::text, "", true);
        EXPECT_FALSE(loaded.ok());
        return loaded.ok() ? "" : loaded.error().text();
    };
    const auto loaded = load_data(with({}), DataKind::text, "", true);
    ASSERT_TRUE(loaded.ok()) << loaded.error().text();
    EXPECT_EQ(loaded->identity.name, "one, two");
    EXPECT_EQ(loaded->identity.train, 1) << "as the smaller of the two";
    ASSERT_EQ(loaded->domains.size(), 2u);
    EXPECT_EQ(loaded->domains[0].name, "one");
    EXPECT_EQ(loaded->domains[0].samples, (std::array<std::int32_t, 3>{2, 1, 1}));
    EXPECT_EQ(loaded->domains[1].samples, (std::array<std::int32_t, 3>{1, 1, 1}));
    // Of both training texts: a, b, c, x and y are frequent enough, d is unknown.
    const auto& set = dynamic_cast<const ResidentText&>(*loaded->source).set();
    EXPECT_EQ(set.tokens(Part::validation)[1], set.tokenizer->unknown());
    EXPECT_EQ(set.tokens(Part::validation)[0], set.tokens(Part::validation)[3]) << "a is a in both";
    EXPECT_EQ(set.domains[0].statistics[1].unknown, 1);
    EXPECT_EQ(set.domains[1].statistics[1].unknown, 0);

    const auto fewer = load_data(with({"data.length=1", "data.scored_windows=2"}), DataKind::text, "", true);
    ASSERT_TRUE(fewer.ok()) << fewer.error().text();
    EXPECT_EQ(fewer->domains[0].samples, (std::array<std::int32_t, 3>{9, 1, 2})) << "of the training text nothing is left out";
    EXPECT_EQ(fewer->domains[1].samples, (std::array<std::int32_t, 3>{5, 1, 1}));
    EXPECT_EQ(fewer->identity.test, 3);
    EXPECT_NE(refused({"data.domains=one,three"}).find("three: no such folder"), std::string::npos);
    EXPECT_NE(refused({"data.domains=one"}).find("data.domains names 1 folder; 2 to 64"), std::string::npos);
    EXPECT_NE(refused({"data.domains=one, two"}).find("different folders of data.path"), std::string::npos);
    EXPECT_NE(refused({"data.domains=one,one"}).find("different folders of data.path"), std::string::npos);
    EXPECT_NE(refused({"train.epochs=3"}).find("3 are no whole number for each of 2 domains; 4"), std::string::npos);
    EXPECT_NE(refused({"data.windows_per_epoch=2"}).find("but two has 1 windows"), std::string::npos);
    EXPECT_NE(refused({"data.path=" + (folder_ / "one").string(), "data.domains=", "data.windows_per_epoch=1"})
                  .find("is for data.domains"),
              std::string::npos);
}

TEST_F(TextFolder, OneFileIsCutAtTheNearestWhiteSpace) {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "word" + std::to_string(i) + " ";
    const Path path = folder_ / "all.txt";
    ASSERT_TRUE(io::write_atomically(path, text).ok());
    const auto files = read_text_files(path, 0.2, 0.1);
    ASSERT_TRUE(files.ok()) << files.error().text();
    EXPECT_EQ(files->texts[0] + files->texts[1] + files->texts[2], text);
    const double size = static_cast<double>(text.size());
    EXPECT_NEAR(static_cast<double>(files->texts[0].size()), 0.7 * size, 4);
    EXPECT_NEAR(static_cast<double>(files->texts[2].size()), 0.1 * size, 4);
    for (const std::string& part : {files->texts[1], files->texts[2]}) EXPECT_EQ(part.front(), ' ') << "no word is cut";
    ASSERT_TRUE(io::write_atomically(path, std::string_view("alone")).ok());
    const auto refused = read_text_files(path, 0.2, 0.1);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("part holds no word"), std::string::npos) << refused.error().text();
}

}  // namespace
}  // namespace millrace::data
