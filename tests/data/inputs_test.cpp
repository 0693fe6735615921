// Inputs without answers: which files are taken, in which order, and what is refused.
#include "data/forms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "data/folder.h"
#include "data/images/image_set.h"
#include "io/table_file.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

class InputsTest : public ::testing::Test {
protected:
    /// A .npy file of f32, two numbers a row.
    void write_pairs(const std::string& name, const std::vector<float>& numbers) const {
        const auto done = io::write_atomically(folder / name, [&](io::FileWriter& to) -> Status {
            io::RowWriter writer(to, io::RowForm::numpy);
            MILLRACE_TRY(writer.begin({}, numbers.size() / 2, 2));
            return writer.add({}, numbers);
        });
        ASSERT_TRUE(done.ok());
    }
    [[nodiscard]] std::string refusal(const std::string& name, const Preparation& prepared) const {
        const auto opened = open_inputs({folder / name}, prepared);
        EXPECT_FALSE(opened.ok());
        return opened.ok() ? "" : opened.error().text();
    }
    test::TemporaryFolder folder;
};

Preparation pairs() {
    Preparation prepared;
    prepared.classes = 2;
    prepared.mean = {1, 10};
    prepared.deviation = {2, 4};
    return prepared;
}

Preparation images(std::int32_t height, std::int32_t width) {
    Preparation prepared;
    prepared.classes = 2;
    prepared.shape = {height, width, 1};
    prepared.mean = {0.5f};
    prepared.deviation = {0.25f};
    return prepared;
}

TEST_F(InputsTest, ArraysAreScaledAsInTraining) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    write_pairs("anything.npy", {1, 10, 3, 6, nan, 0});
    const auto opened = open_inputs({folder / "anything.npy"}, pairs());
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    ASSERT_EQ(opened->size(), 1u);
    const Inputs& inputs = opened->front();
    EXPECT_EQ(inputs.count, 3);
    EXPECT_TRUE(inputs.names.empty());
    const auto rows = inputs.read(1, 2);
    ASSERT_TRUE(rows.ok());
    ASSERT_EQ(rows->numbers.size(), 4u);
    EXPECT_EQ(rows->numbers[0], 1);
    EXPECT_EQ(rows->numbers[1], -1);
    ASSERT_EQ(rows->unreadable.size(), 1u);
    EXPECT_EQ(rows->unreadable.at(1), "has a number that is not finite");
}

TEST_F(InputsTest, AFolderOfArraysGivesItsInputsByPart) {
    std::filesystem::create_directories(folder / "set");
    write_pairs("set/x_test.npy", {5, 5});
    write_pairs("set/x_train.npy", {1, 1, 2, 2});
    write_pairs("set/y_train.npy", {0, 0});
    const auto opened = open_inputs({folder / "set"}, pairs());
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    ASSERT_EQ(opened->size(), 2u);
    EXPECT_EQ((*opened)[0].count, 2);
    EXPECT_EQ((*opened)[1].count, 1);
    std::filesystem::remove(folder / "set/x_test.npy");
    std::filesystem::rename(folder / "set/x_train.npy", folder / "set/other.npy");
    EXPECT_NE(refusal("set", pairs()).find("none is called x"), std::string::npos);
}

TEST_F(InputsTest, OtherShapesAreRefused) {
    write_pairs("x.npy", {1, 2, 3, 4});
    Preparation three = pairs();
    three.mean.push_back(0), three.deviation.push_back(1);
    EXPECT_NE(refusal("x.npy", three).find("has F32 inputs of shape [2]; [3] would be right"), std::string::npos);
    EXPECT_NE(refusal("x.npy", images(2, 1)).find("U8 of [2, 1, 1] would be right"), std::string::npos);
    Preparation table;
    table.classes = 2;
    table.columns = {{"a"}};
    EXPECT_NE(refusal("x.npy", table).find("holds arrays; the run was trained on other data: a table"), std::string::npos);
    EXPECT_NE(refusal("absent.npy", table).find("no such file or folder"), std::string::npos);
}

TEST_F(InputsTest, ImagesOfIdxFilesNeedNoLabels) {
    std::vector<std::uint8_t> pixels;
    for (int i = 0; i < 3 * 2 * 4; ++i) pixels.push_back(static_cast<std::uint8_t>(i));
    const std::uint32_t shape[] = {3, 2, 4};
    ASSERT_TRUE(write_idx(folder / kTestImages, shape, pixels).ok());
    for (const Path& path : {folder.path(), folder / kTestImages}) {
        const auto opened = open_inputs({path}, images(2, 4));
        ASSERT_TRUE(opened.ok()) << opened.error().text();
        ASSERT_EQ(opened->size(), 1u);
        EXPECT_EQ(opened->front().count, 3);
        EXPECT_EQ(opened->front().read(1, 1)->bytes, std::vector<std::uint8_t>(pixels.begin() + 8, pixels.begin() + 16));
    }
    EXPECT_NE(refusal(kTestImages, images(4, 2)).find("has the shape [3, 2, 4]; images of 4 x 2 x 1 would be right"),
              std::string::npos);
}

TEST_F(InputsTest, FilesOfAFolderAreSortedByPathAndLinksEnd) {
    std::filesystem::create_directories(folder / "a/b");
    std::filesystem::create_directories(folder / ".hidden");
    for (const char* name : {"a/b/2.png", "a-b.PNG", "z.jpg", ".x.png", ".hidden/y.png", "readme.md"})
        ASSERT_TRUE(io::write_atomically(folder / name, "x").ok());
    std::filesystem::create_directory_symlink(folder.path(), folder / "a/back");
    std::filesystem::create_symlink(folder / "z.jpg", folder / "a/z-again.jpg");
    constexpr std::string_view kEndings[] = {".png", ".jpg"};
    const auto found = find_files({folder.path(), folder / "z.jpg"}, kEndings, "picture");
    ASSERT_TRUE(found.ok()) << found.error().text();
    std::vector<std::string> names;
    for (const Path& path : *found) names.push_back(path.lexically_relative(folder.path()).string());
    EXPECT_EQ(names, (std::vector<std::string>{"a-b.PNG", "a/b/2.png", "a/z-again.jpg", "z.jpg", "z.jpg"}));
    EXPECT_EQ(find_files({folder / "readme.md"}, kEndings, "picture").error().message, "holds no picture");
}

}  // namespace
}  // namespace millrace::data
