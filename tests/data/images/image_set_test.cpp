#include "data/images/image_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/forms.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

void write_pair(const Path& folder, const char* images, const char* labels, std::uint32_t count, std::uint32_t side = 3) {
    std::vector<std::uint8_t> pixels(std::size_t{count} * side * side);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
    std::vector<std::uint8_t> classes(count);
    for (std::uint32_t i = 0; i < count; ++i) classes[i] = static_cast<std::uint8_t>(i % 10);
    ASSERT_TRUE(write_idx(folder / images, std::array{count, side, side}, pixels).ok());
    ASSERT_TRUE(write_idx(folder / labels, std::array{count}, classes).ok());
}

class ImageSetFolder : public ::testing::Test {
protected:
    void SetUp() override {
        write_pair(folder.path(), kTrainImages, kTrainLabels, 101);
        write_pair(folder.path(), kTestImages, kTestLabels, 13);
    }
    std::string refusal() {
        const auto set = load_image_set({folder.path()});
        EXPECT_FALSE(set.ok());
        return set.ok() ? "" : set.error().text();
    }
    void describe(std::string_view text) { ASSERT_TRUE(io::write_atomically(folder / kDescription, text).ok()); }
    test::TemporaryFolder folder;
};

TEST_F(ImageSetFolder, LoadsAndSplitsAndMeasures) {
    const auto set = load_image_set({folder.path()});
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->count, 101 + 13);
    EXPECT_EQ(set->preparation.classes, 10) << "as the labels say";
    EXPECT_EQ(set->part(Part::test).size(), 13u);
    EXPECT_EQ(set->part(Part::test).front(), 101);
    EXPECT_EQ(set->part(Part::validation).size(), 10u);
    EXPECT_EQ(set->part(Part::train).size(), 91u);
    double sum = 0;
    for (const std::int32_t sample : set->part(Part::train))
        for (int i = 0; i < 9; ++i) sum += set->bytes[static_cast<std::size_t>(sample * 9 + i)] / 255.0;
    EXPECT_EQ(set->preparation.mean, std::vector{static_cast<float>(sum / (91 * 9))});
}

TEST_F(ImageSetFolder, DescriptionDecides) {
    describe(R"({"name": "mine", "mean": 0.25, "std": 0.5, "classes": 11})");
    const auto set = load_image_set({folder.path()});
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, "mine");
    EXPECT_EQ(set->preparation.classes, 11);
    EXPECT_EQ(set->preparation.mean, std::vector{0.25f});
    EXPECT_EQ(set->preparation.deviation, std::vector{0.5f});
}

TEST_F(ImageSetFolder, ClassesMayHaveNames) {
    describe(R"({"name": "mine", "class_names": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]})");
    const auto set = load_image_set({folder.path()});
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.classes, 11);
    EXPECT_EQ(set->preparation.class_names.at(10), "k");
    describe(R"({"name": "garments"})");
    EXPECT_EQ(load_image_set({folder.path()})->preparation.class_names.at(9), "Ankle boot");
    describe(R"({"name": "mnist"})");
    EXPECT_TRUE(load_image_set({folder.path()})->preparation.class_names.empty());
    describe(R"({"classes": 11, "class_names": ["a", "b"]})");
    EXPECT_NE(refusal().find("2 names for 11 classes"), std::string::npos);
    for (const char* names : {R"("a")", "[]", R"(["a", 1])", R"(["a\u001b[2J"])", R"({"a": "b"})"}) {
        describe(std::string(R"({"class_names": )") + names + "}");
        EXPECT_NE(refusal().find("'class_names' must be a list"), std::string::npos) << names;
    }
}

TEST_F(ImageSetFolder, KnownNamesHaveTheirConstants) {
    describe(R"({"name": "fashion-mnist"})");
    EXPECT_EQ(load_image_set({folder.path()})->preparation.mean, std::vector{0.2860f});
    describe(R"({"name": "mnist"})");
    EXPECT_EQ(load_image_set({folder.path()})->preparation.deviation, std::vector{0.3081f});
}

TEST_F(ImageSetFolder, BadDescriptionsAreRefused) {
    for (const char* text : {"", "[]", "{", R"({"mean": 0.1})", R"({"mean": 0.1, "std": 0})", R"({"mean": "a", "std": 1})",
                             R"({"classes": 0})", R"({"classes": 2.5})", R"({"classes": 1e99})", R"({"name": 3})"}) {
        describe(text);
        EXPECT_NE(refusal().find(kDescription), std::string::npos) << text;
    }
}

TEST_F(ImageSetFolder, ThreeClassesStayThree) {
    std::vector<std::uint8_t> labels(101);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint8_t>(i % 3);
    ASSERT_TRUE(write_idx(folder / kTrainLabels, std::array{101u}, labels).ok());
    labels.resize(13);
    ASSERT_TRUE(write_idx(folder / kTestLabels, std::array{13u}, labels).ok());
    const auto set = load_image_set({folder.path()});
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.classes, 3);
    EXPECT_EQ(set->count, 114);
    EXPECT_EQ(set->labels[102], 1) << "test images lie behind those for training";
}

TEST_F(ImageSetFolder, LabelOutOfRangeNamesIndexAndValue) {
    describe(R"({"classes": 10})");
    std::vector<std::uint8_t> labels(101, 3);
    labels[57] = 10;
    ASSERT_TRUE(write_idx(folder / kTrainLabels, std::array{101u}, labels).ok());
    const std::string text = refusal();
    EXPECT_NE(text.find("label 10 at index 57"), std::string::npos) << text;
    EXPECT_NE(text.find(kTrainLabels), std::string::npos) << text;
    EXPECT_NE(text.find(R"(dataset.json beside it must say so: {"classes": 11})"), std::string::npos) << text;
}

TEST_F(ImageSetFolder, CountsThatDifferAreRefused) {
    ASSERT_TRUE(write_idx(folder / kTestLabels, std::array{12u}, std::vector<std::uint8_t>(12)).ok());
    EXPECT_NE(refusal().find("12 labels for the 13 images"), std::string::npos);
}

TEST_F(ImageSetFolder, ImageSizesThatDifferAreRefused) {
    write_pair(folder.path(), kTestImages, kTestLabels, 13, 4);
    EXPECT_NE(refusal().find("4 x 4"), std::string::npos);
}

TEST_F(ImageSetFolder, MissingFileIsNamed) {
    std::filesystem::remove(folder / kTestImages);
    EXPECT_NE(refusal().find(kTestImages), std::string::npos);
}

TEST(ImageSet, MissingFolderSaysHowToMakeOne) {
    const auto set = load_image_set({"/nowhere/at/all"});
    ASSERT_FALSE(set.ok());
    EXPECT_NE(set.error().text().find("millrace data make garments"), std::string::npos);
}

Parts split(std::int32_t count, double validation = 0.1, std::uint64_t seed = 42) {
    Parts parts;
    split_samples(parts, 7, count, validation, 0, seed);
    return parts;
}

TEST(Split, IsAPartitionThatDependsOnTheSeedOnly) {
    constexpr std::size_t kTrain = index_of(Part::train), kValidation = index_of(Part::validation);
    for (const std::int32_t count : {0, 1, 9, 10, 997, 60000}) {
        const Parts parts = split(count);
        EXPECT_EQ(parts[kValidation].size(), static_cast<std::size_t>(count / 10));
        std::set<std::int32_t> all(parts[kTrain].begin(), parts[kTrain].end());
        all.insert(parts[kValidation].begin(), parts[kValidation].end());
        EXPECT_EQ(all.size(), static_cast<std::size_t>(count));
        if (count > 0) {
            EXPECT_EQ(*all.begin(), 7);
            EXPECT_EQ(*all.rbegin(), 7 + count - 1);
        }
        EXPECT_EQ(parts, split(count));
    }
    EXPECT_NE(split(997, 0.1, 42)[kValidation], split(997, 0.1, 43)[kValidation]);
    EXPECT_TRUE(split(997, 0)[kValidation].empty());
}

}  // namespace
}  // namespace millrace::data
