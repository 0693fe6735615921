#include "data/pairs/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "captured_log.h"
#include "data/images/image_set.h"
#include "data/makers.h"
#include "data/pairs/teacher.h"
#include "save_safetensors.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

constexpr const char* kLine = "{\"input\": \"It rains.\", \"target\": \"It is wet.\"}\n";

/// Three pairs of five numbers each, to be spoiled.
class Pairs : public ::testing::Test {
protected:
    void SetUp() override { write(); }

    void write() {
        const io::TensorView tensors[] = {io::float_tensor(kInputVectors, input_shape, inputs),
                                          io::float_tensor(kTargetVectors, target_shape, targets)};
        ASSERT_TRUE(test::save_safetensors(folder_ / kPairVectors, tensors).ok());
        ASSERT_TRUE(io::write_atomically(folder_ / kPairTexts, texts).ok());
    }
    void describe(std::string_view text) { ASSERT_TRUE(io::write_atomically(folder_ / kDescription, text).ok()); }
    /// Loading fails with status 2, at `place` (the end of it) and with `word` in the message.
    void refused(const std::string& place, const std::string& word) {
        const auto set = load_pair_set(folder_.path());
        ASSERT_FALSE(set.ok()) << word;
        EXPECT_EQ(set.error().exit_status, 2);
        EXPECT_TRUE(set.error().place.ends_with(place)) << set.error().text();
        EXPECT_NE(set.error().message.find(word), std::string::npos) << set.error().text();
    }

    test::TemporaryFolder folder_;
    std::vector<float> inputs{1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0.6f, 0.8f, 0};
    std::vector<float> targets{0, 0, 0, 0, 1, 0, 0, 0, -1, 0, 0, 0, 0.8f, 0.6f, 0};
    std::vector<std::int64_t> input_shape{3, 5}, target_shape{3, 5};
    std::string texts = std::string(kLine) + kLine + kLine;
};

TEST_F(Pairs, LoadsWhatWasWritten) {
    const auto set = load_pair_set(folder_.path(), 0.34, 5);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, folder_.path().filename().string());
    EXPECT_EQ(set->teacher, "");
    EXPECT_EQ(set->count, 3u);
    EXPECT_EQ(set->dimensions, 5u);
    EXPECT_EQ(set->inputs, inputs);
    EXPECT_EQ(set->targets, targets);
    EXPECT_EQ(set->texts[2].input, "It rains.");
    EXPECT_EQ(set->texts[2].target, "It is wet.");
    EXPECT_EQ(set->part(Part::validation).size(), 1u);
    Parts parts;
    split_samples(parts, 0, 3, 0.34, 0, 5);
    EXPECT_EQ(set->parts, parts);
}

TEST_F(Pairs, ChecksumTellsSetsApart) {
    const std::uint64_t sum = load_pair_set(folder_.path()).value().checksum;
    EXPECT_EQ(load_pair_set(folder_.path(), 0.5, 9).value().checksum, sum);
    std::swap(inputs[0], inputs[1]);
    write();
    const std::uint64_t other = load_pair_set(folder_.path()).value().checksum;
    EXPECT_NE(other, sum);
    texts.replace(texts.find("rains"), 5, "snows");
    write();
    EXPECT_NE(load_pair_set(folder_.path()).value().checksum, other);
}

TEST_F(Pairs, OtherLengthsAreScaledWithOneWarning) {
    for (std::size_t i = 0; i < 5; ++i) inputs[i] *= 1e-30f;
    for (std::size_t i = 10; i < 15; ++i) targets[i] *= 3e37f;
    write();
    const test::CapturedLog log;
    const auto set = load_pair_set(folder_.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    ASSERT_EQ(log.lines().size(), 1u);
    EXPECT_TRUE(log.text().starts_with("warning: ")) << log.text();
    EXPECT_NE(log.text().find("2 of 6"), std::string::npos) << log.text();
    EXPECT_NEAR(set->inputs[0], 1, 1e-6);
    EXPECT_NEAR(set->targets[12], 0.8, 1e-6);
    EXPECT_NEAR(set->targets[13], 0.6, 1e-6);
}

TEST_F(Pairs, VectorsThatPointNowhereAreRefused) {
    inputs[6] = 0;
    write();
    refused(kPairVectors, "row 1 of tensor 'input_embeddings' is zero");
    inputs[6] = 1;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        targets[14] = bad;
        write();
        refused(kPairVectors, "row 2 of tensor 'target_embeddings' holds a number that is not finite");
    }
}

TEST_F(Pairs, WrongTensorsAreRefused) {
    const auto save = [&](std::vector<io::TensorView> tensors) {
        ASSERT_TRUE(test::save_safetensors(folder_ / kPairVectors, tensors).ok());
    };
    const auto input = io::float_tensor(kInputVectors, {3, 5}, inputs);
    save({input});
    refused(kPairVectors, "no tensor 'target_embeddings'");
    save({});
    refused(kPairVectors, "no tensor 'input_embeddings'");
    save({input, io::float_tensor(kTargetVectors, {15}, targets)});
    refused(kPairVectors, "has 1 axes");
    save({input, io::float_tensor(kTargetVectors, {5, 3}, targets)});
    refused(kPairVectors, "they must be equal");
    save({io::float_tensor(kInputVectors, {0, 5}, {}), io::float_tensor(kTargetVectors, {0, 5}, {})});
    refused(kPairVectors, "has 0 rows");
    save({io::float_tensor(kInputVectors, {3, 0}, {}), io::float_tensor(kTargetVectors, {3, 0}, {})});
    refused(kPairVectors, "rows of 0 numbers");
    const std::vector<float> wide(16'385, 1.0f);
    save({io::float_tensor(kInputVectors, {1, 16'385}, wide), io::float_tensor(kTargetVectors, {1, 16'385}, wide)});
    refused(kPairVectors, "rows of 16385 numbers");
    auto integers = input;
    integers.type = io::ElementType::kI32;
    save({integers, io::float_tensor(kTargetVectors, {3, 5}, targets)});
    refused(kPairVectors, "I32");
}

TEST_F(Pairs, DamagedFilesAreRefused) {
    const auto whole = io::read_text(folder_ / kPairVectors).value();
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{40}, whole.size() - 1}) {
        ASSERT_TRUE(io::write_atomically(folder_ / kPairVectors, std::string_view(whole).substr(0, size)).ok());
        refused(kPairVectors, "");
    }
    std::filesystem::remove(folder_ / kPairVectors);
    refused(kPairVectors, "");
    write();
    std::filesystem::remove(folder_ / kPairTexts);
    refused(kPairTexts, "");
    const auto missing = load_pair_set(folder_ / "nowhere");
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("data make pairs"), std::string::npos);
}

TEST_F(Pairs, BadLinesAreRefusedByNumber) {
    const auto second = [&](const std::string& line, const char* word) {
        texts = std::string(kLine) + line + "\n" + kLine;
        write();
        refused("pairs.jsonl:2", word);
    };
    second("", "not a JSON object");
    second("[1, 2]", "not a JSON object");
    second("{\"input\": \"half", "not a JSON object");
    second("{\"input\": \"\xC3\x28\", \"target\": \"b\"}", "UTF-8");
    second("{\"input\": \"\\ud800\", \"target\": \"b\"}", "UTF-8");
    second("{\"input\": \"a\"}", "'target'");
    second("{\"input\": 3, \"target\": \"b\"}", "'input'");
    second("{\"input\": \" \\n\", \"target\": \"b\"}", "'input' is empty");
    second("{\"input\": \"" + std::string(70'000, 'x') + "\", \"target\": \"b\"}", "at most 65536");
    second(std::string(60'000, '['), "deep");
}

TEST_F(Pairs, LinesMustMatchTheVectors) {
    texts = std::string(kLine) + kLine;
    write();
    refused(kPairTexts, "has 2 lines for the 3 vectors");
    texts = std::string(kLine) + kLine + kLine + kLine;
    write();
    refused("pairs.jsonl:4", "a line more");
    texts = "";
    write();
    refused(kPairTexts, "has 0 lines");
    // The last newline may be missing; other keys, blanks and the line ends of other systems are nobody's business.
    texts = std::string(kLine) + kLine + R"( {"id": 3, "target": "b", "input": "a"} )" + "\r";
    write();
    EXPECT_TRUE(load_pair_set(folder_.path()).ok());
}

TEST_F(Pairs, DescriptionIsChecked) {
    describe(R"({"name": "rain", "teacher": "some/model", "dimensions": 5, "made": {"by": "hand"}})");
    const auto set = load_pair_set(folder_.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, "rain");
    EXPECT_EQ(set->teacher, "some/model");
    describe(R"({"dimensions": 6})");
    refused(kDescription, "says 6 dimensions");
    for (const char* bad : {R"({"dimensions": 0})", R"({"dimensions": 1e9})", R"({"dimensions": "5"})"}) {
        describe(bad);
        refused(kDescription, "'dimensions'");
    }
    describe(R"({"teacher": 5})");
    refused(kDescription, "'teacher' must be a string");
    describe(R"({"tutor": "hashed"})");
    refused(kDescription, "tutor");
    describe("[]");
    refused(kDescription, "not a JSON object");
    describe(R"({"teacher": "hashed"})");
    refused("pairs.jsonl:1", "not the hashed teacher's vector");
}

TEST(MakePairs, WritesASetThatLoads) {
    const test::TemporaryFolder folder;
    const auto made = make_pairs(folder / "deep/er", {113, 3, 96});
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(*made, MakeOutcome::kWritten);
    const auto set = load_pair_set(folder / "deep/er");
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, "pairs");
    EXPECT_EQ(set->teacher, kHashedTeacher);
    EXPECT_EQ(set->count, 113u);
    EXPECT_EQ(set->dimensions, 96u);
    EXPECT_EQ(set->part(Part::validation).size(), 11u);
    for (const std::size_t row : {0u, 57u, 112u}) {
        EXPECT_EQ(set->texts[row], sentence_pair(3, static_cast<std::uint32_t>(row)));
        const auto input = teach(set->texts[row].input, 96).value(), target = teach(set->texts[row].target, 96).value();
        EXPECT_TRUE(std::equal(input.begin(), input.end(), set->inputs.begin() + static_cast<std::ptrdiff_t>(row) * 96));
        EXPECT_TRUE(std::equal(target.begin(), target.end(), set->targets.begin() + static_cast<std::ptrdiff_t>(row) * 96));
    }
}

TEST(MakePairs, SameSetIsLeftAloneOthersAreRefused) {
    const test::TemporaryFolder folder;
    ASSERT_TRUE(make_pairs(folder.path(), {13, 3, 7}).ok());
    const auto before = std::filesystem::last_write_time(folder / kPairVectors);
    EXPECT_EQ(make_pairs(folder.path(), {13, 3, 7}).value(), MakeOutcome::kAlreadyThere);
    for (const PairsOptions& other : {PairsOptions{14, 3, 7}, PairsOptions{13, 4, 7}, PairsOptions{13, 3, 8}})
        EXPECT_FALSE(make_pairs(folder.path(), other).ok());
    EXPECT_EQ(std::filesystem::last_write_time(folder / kPairVectors), before);
    // What an interrupted run leaves is completed.
    std::filesystem::remove(folder / kDescription);
    std::filesystem::remove(folder / kPairTexts);
    EXPECT_EQ(make_pairs(folder.path(), {13, 3, 7}).value(), MakeOutcome::kWritten);
    EXPECT_TRUE(load_pair_set(folder.path()).ok());
    EXPECT_EQ(std::filesystem::last_write_time(folder / kPairVectors), before);
    ASSERT_TRUE(io::write_atomically(folder / kPairTexts, "mine\n").ok());
    EXPECT_FALSE(make_pairs(folder.path(), {13, 3, 7}).ok());
    EXPECT_EQ(io::read_text(folder / kPairTexts).value(), "mine\n");
}

TEST(MakePairs, SizesThatCannotBeAreRefused) {
    const test::TemporaryFolder folder;
    EXPECT_FALSE(make_pairs(folder / "a", {0, 3, 7}).ok());
    EXPECT_FALSE(make_pairs(folder / "a", {sentence_pair_limit() + 1, 3, 7}).ok());
    EXPECT_FALSE(make_pairs(folder / "a", {13, 3, 0}).ok());
    EXPECT_FALSE(make_pairs(folder / "a", {13, 3, 16'385}).ok());
    EXPECT_FALSE(make_pairs(folder / "a", {sentence_pair_limit(), 3, 16'384}).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

}  // namespace
}  // namespace millrace::data
