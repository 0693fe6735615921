#include "data/images/image_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
        const auto set = load_image_set(folder.path());
        EXPECT_FALSE(set.ok());
        return set.ok() ? "" : set.error().text();
    }
    void describe(std::string_view text) { ASSERT_TRUE(io::write_atomically(folder / kDescription, text).ok()); }
    test::TemporaryFolder folder;
};

TEST_F(ImageSetFolder, LoadsAndSplitsAndMeasures) {
    const auto set = load_image_set(folder.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->train.count, 101u);
    EXPECT_EQ(set->classes, 10u) << "as the labels say";
    EXPECT_EQ(set->test.count, 13u);
    EXPECT_EQ(set->split.validation.size(), 10u);
    EXPECT_EQ(set->split.training.size(), 91u);
    double sum = 0;
    for (const std::uint32_t index : set->split.training)
        for (int i = 0; i < 9; ++i) sum += set->train.pixels[index * 9 + static_cast<std::uint32_t>(i)] / 255.0;
    EXPECT_NEAR(set->pixels.mean, sum / (91 * 9), 1e-12);
}

TEST_F(ImageSetFolder, DescriptionDecides) {
    describe(R"({"name": "mine", "mean": 0.25, "std": 0.5, "classes": 11})");
    const auto set = load_image_set(folder.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->name, "mine");
    EXPECT_EQ(set->classes, 11u);
    EXPECT_EQ(set->pixels.mean, 0.25);
    EXPECT_EQ(set->pixels.deviation, 0.5);
}

TEST_F(ImageSetFolder, ClassesMayHaveNames) {
    describe(R"({"name": "mine", "class_names": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]})");
    const auto set = load_image_set(folder.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->classes, 11u);
    EXPECT_EQ(set->class_names.at(10), "k");
    describe(R"({"name": "garments"})");
    EXPECT_EQ(load_image_set(folder.path())->class_names.at(9), "Ankle boot");
    describe(R"({"name": "mnist"})");
    EXPECT_TRUE(load_image_set(folder.path())->class_names.empty());
    describe(R"({"classes": 11, "class_names": ["a", "b"]})");
    EXPECT_NE(refusal().find("2 names for 11 classes"), std::string::npos);
    for (const char* names : {R"("a")", "[]", R"(["a", 1])", R"(["a\u001b[2J"])", R"({"a": "b"})"}) {
        describe(std::string(R"({"class_names": )") + names + "}");
        EXPECT_NE(refusal().find("'class_names' must be a list"), std::string::npos) << names;
    }
}

TEST_F(ImageSetFolder, KnownNamesHaveTheirConstants) {
    describe(R"({"name": "fashion-mnist"})");
    EXPECT_EQ(load_image_set(folder.path())->pixels.mean, 0.2860);
    describe(R"({"name": "mnist"})");
    EXPECT_EQ(load_image_set(folder.path())->pixels.deviation, 0.3081);
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
    const auto set = load_image_set(folder.path());
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->classes, 3u);
    const SampleSet samples = samples_of(*set);
    EXPECT_EQ(samples.preparation.classes, 3);
    EXPECT_EQ(samples.count, 114);
    EXPECT_EQ(samples.labels[102], 1) << "test images lie behind those for training";
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
    const auto set = load_image_set("/nowhere/at/all");
    ASSERT_FALSE(set.ok());
    EXPECT_NE(set.error().text().find("millrace data make garments"), std::string::npos);
}

TEST(Split, IsAPartitionThatDependsOnTheSeedOnly) {
    for (const std::uint32_t count : {0u, 1u, 9u, 10u, 997u, 60000u}) {
        const Split split = split_validation(count);
        EXPECT_EQ(split.validation.size(), count / 10);
        std::set<std::uint32_t> all(split.training.begin(), split.training.end());
        all.insert(split.validation.begin(), split.validation.end());
        EXPECT_EQ(all.size(), count);
        if (count > 0) {
            EXPECT_EQ(*all.rbegin(), count - 1);
        }
        EXPECT_EQ(split.training, split_validation(count).training);
    }
    EXPECT_NE(split_validation(997, 0.1, 42).validation, split_validation(997, 0.1, 43).validation);
    EXPECT_TRUE(split_validation(997, 0).validation.empty());
}

}  // namespace
}  // namespace millrace::data
