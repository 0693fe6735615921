// Folders of pictures: what they become, what is kept, and what is refused.

#include "data/forms.h"

#include <algorithm>

#include "data/inputs_of.h"
#include "data/pictures/picture_files.h"
#include "data/pictures/pictures.h"
#include "places.h"
#include "temporary_folder.h"

namespace millrace::data {
namespace {

using testing::plain_picture;
using testing::write_picture;

class PictureSet : public ::testing::Test {
protected:
    void SetUp() override {
        if (!io::can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
        request.path = folder.path();
    }
    /// So many colour pictures of a class, 6 wide and 4 high.
    void write_class(const std::string& name, int count, testing::Colour colour) const {
        for (int i = 0; i < count; ++i)
            write_picture(folder / name / (std::to_string(i) + ".png"), plain_picture(6, 4, 3, colour));
    }
    [[nodiscard]] std::string refusal() const {
        const auto set = load_picture_set(request);
        EXPECT_FALSE(set.ok());
        return set.ok() ? "" : set.error().text();
    }
    test::TemporaryFolder folder;
    SampleRequest request;
};

TEST_F(PictureSet, FoldersAreClassesAndNamesDecideTheParts) {
    write_class("cats", 40, {200, 10, 0});
    write_class("dogs", 41, {0, 100, 50});
    const auto set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.shape, (Shape{4, 6, 3}));
    EXPECT_EQ(set->preparation.class_names, (std::vector<std::string>{"cats", "dogs"}));
    EXPECT_EQ(set->count, 81);
    std::size_t all = 0;
    for (const auto& part : set->parts) {
        all += part.size();
        EXPECT_GT(part.size(), 0u);
    }
    EXPECT_EQ(all, 81u);
    const auto bytes = inputs_of<std::uint8_t>(*set);
    for (std::size_t i = 0; i < 81; ++i) {
        EXPECT_EQ(set->labels[i], i < 40 ? 0 : 1);
        EXPECT_EQ(bytes[i * 72], i < 40 ? 200 : 0) << i;
        EXPECT_EQ(bytes[i * 72 + 1], i < 40 ? 10 : 100) << i;
    }
    ASSERT_EQ(set->preparation.mean.size(), 3u);
    EXPECT_EQ(set->preparation.deviation.size(), 3u);

    // A file more moves no other one to another part.
    const auto names_of = [&](const std::vector<std::int32_t>& part, const PictureFolder& files) {
        std::vector<std::string> names;
        for (const std::int32_t sample : part) names.push_back(files.files[static_cast<std::size_t>(sample)].name);
        return names;
    };
    const auto before = find_pictures(request);
    write_class("ants", 1, {1, 2, 3});
    const auto after = find_pictures(request);
    ASSERT_TRUE(before.ok() && after.ok());
    for (const ClassFile& file : before->files)
        EXPECT_EQ(std::ranges::find(after->files, file.name, &ClassFile::name)->part, file.part) << file.name;
    EXPECT_EQ(names_of(set->part(Part::test), *before).empty(), false);
}

TEST_F(PictureSet, PartFoldersAreTheParts) {
    write_class("train/a", 30, {1, 2, 3});
    write_class("train/b", 30, {4, 5, 6});
    write_class("test/b", 3, {4, 5, 6});
    write_class("test/c", 2, {7, 8, 9});
    const auto set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.class_names, (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(set->part(Part::test).size(), 5u);
    EXPECT_EQ(set->part(Part::train).size() + set->part(Part::validation).size(), 60u);
    EXPECT_GT(set->part(Part::validation).size(), 0u) << "a share of train, for want of a folder";
}

TEST_F(PictureSet, DecodedOnceAndAgainWhenAFileChanges) {
    write_class("a", 3, {10, 20, 30});
    write_class("b", 3, {40, 50, 60});
    ASSERT_TRUE(load_picture_set(request).ok());
    const Path kept = folder / ".millrace";
    const auto files = [&] {
        return std::distance(std::filesystem::directory_iterator(kept), std::filesystem::directory_iterator());
    };
    EXPECT_EQ(files(), 1) << "the rows, and no lock";
    // What is kept is what is read: it is not decoded again.
    const Path rows = std::filesystem::directory_iterator(kept)->path();
    auto bytes = io::read_text(rows);
    ASSERT_TRUE(bytes.ok());
    (*bytes)[bytes->size() - 6 - 1] = 77;  // the last pixel; a mark for each file is behind it
    ASSERT_TRUE(io::write_atomically(rows, *bytes).ok());
    EXPECT_EQ(inputs_of<std::uint8_t>(*load_picture_set(request)).back(), 77);
    EXPECT_TRUE(load_picture_set(request)->bytes.empty()) << "rows stay in their file";
    write_picture(folder / "b/2.png", plain_picture(6, 4, 3, {41, 51, 61}));
    std::filesystem::last_write_time(folder / "b/2.png", std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
    EXPECT_EQ(inputs_of<std::uint8_t>(*load_picture_set(request)).back(), 61);
    request.size = "3x2";
    EXPECT_EQ(load_picture_set(request)->width, 18);
    EXPECT_EQ(files(), 3);
}

TEST_F(PictureSet, AHeadBehindALongPreviewSaysWhatTheFileIs) {
    const auto text = io::read_text(millrace::testing::source_root() / "tests/fuzz/corpus-picture/progressive.jpg");
    ASSERT_TRUE(text.ok());
    const std::string preview = "\xff\xfe\x80\x02" + std::string(0x8000, 'x');  // a comment of 32 KiB
    for (const char* name : {"a/0.jpg", "b/1.jpg"}) {
        std::filesystem::create_directories((folder / name).parent_path());
        ASSERT_TRUE(io::write_atomically(folder / name, text->substr(0, 2) + preview + text->substr(2)).ok());
    }
    const auto set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.shape, (Shape{16, 24, 3}));
}

TEST_F(PictureSet, BrokenFilesAreLeftOutUpToOnePercent) {
    write_class("a", 60, {10, 20, 30});
    write_class("b", 59, {40, 50, 60});
    request.validation = request.test = 0;
    ASSERT_TRUE(io::write_atomically(folder / "b/broken.png", std::string_view("no picture")).ok());
    for (const char* when : {"decoded", "read again"}) {
        const auto set = load_picture_set(request);
        ASSERT_TRUE(set.ok()) << set.error().text();
        EXPECT_EQ(set->part(Part::train).size(), 119u) << when;
        EXPECT_TRUE(
            std::ranges::any_of(set->notes, [](const std::string& note) { return note.find("1 of 120") != std::string::npos; }));
    }
    ASSERT_TRUE(io::write_atomically(folder / "b/worse.jpg", std::string_view("\xff\xd8\xff no JPEG")).ok());
    const std::string text = refusal();
    for (const char* word : {"2 of 121", "more than 1 %", "b/broken.png", "b/worse.jpg"})
        EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST_F(PictureSet, ATableBesideThePicturesHasTheLabels) {
    for (int i = 0; i < 12; ++i)
        write_picture(folder / (std::to_string(i) + ".png"), plain_picture(5, 5, 1, {static_cast<std::uint8_t>(i), 0, 0}));
    std::string table = "id,kind,weight\n";
    for (int i = 0; i < 12; ++i)
        table += std::to_string(i) + (i % 2 == 0 ? ".png,even," : ".png,odd,") + std::to_string(i * 10) + "\n";
    ASSERT_TRUE(io::write_atomically(folder / "labels.csv", table).ok());
    request.validation = request.test = 0;
    auto set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation.class_names, (std::vector<std::string>{"even", "odd"}));
    EXPECT_EQ(set->preparation.shape.channels, 1) << "grey as the files are";
    EXPECT_EQ(set->notes.size(), 1u) << "of the classes alone";
    // Sorted by name: 0, 1, 10, 11, 2, ...
    EXPECT_EQ((std::vector<std::int32_t>(set->labels.begin(), set->labels.begin() + 5)),
              (std::vector<std::int32_t>{0, 1, 0, 1, 0}));
    request.target = "weight";
    set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    ASSERT_TRUE(set->preparation.target.has_value());
    EXPECT_DOUBLE_EQ(set->preparation.target->mean, 55);
    EXPECT_TRUE(set->labels.empty());
}

TEST_F(PictureSet, OtherPicturesArePreparedAsTheCheckpointSays) {
    write_class("a", 2, {10, 20, 30});
    write_class("c", 2, {40, 50, 60});
    Preparation stored;
    stored.shape = {8, 8, 1};
    stored.resize = "crop";
    stored.mean = {0.25f};
    stored.deviation = {0.5f};
    stored.classes = 3;
    stored.class_names = {"a", "b", "c"};
    request.stored = &stored;
    const auto set = load_picture_set(request);
    ASSERT_TRUE(set.ok()) << set.error().text();
    EXPECT_EQ(set->preparation, stored);
    EXPECT_EQ(set->labels, (std::vector<std::int32_t>{0, 0, 2, 2}));
    stored.class_names = {"a", "b", "d"};
    EXPECT_NE(refusal().find("has the class \"c\", which the training data had not"), std::string::npos);
}

TEST_F(PictureSet, WhatIsNoSetIsRefused) {
    write_class("one", 2, {1, 2, 3});
    EXPECT_NE(refusal().find("1 class"), std::string::npos);
    write_class("two", 2, {1, 2, 3});
    for (const char* size : {"32", "0x4", "4x", "x4", "5000x1", "4x4x4", "-3x2"}) {
        request.size = size;
        EXPECT_NE(refusal().find("data.size"), std::string::npos) << size;
    }
}

TEST(PlacePicture, FitShowsAllAndCropFillsTheFrame) {
    io::Picture wide{4, 2, 1, {10, 20, 30, 40, 10, 20, 30, 40}};
    std::vector<std::uint8_t> to(16, 99);
    place_picture(wide, {4, 4}, Resize::fit, to);
    EXPECT_EQ(to, (std::vector<std::uint8_t>{0, 0, 0, 0, 10, 20, 30, 40, 10, 20, 30, 40, 0, 0, 0, 0}));
    to.assign(4, 99);
    place_picture(wide, {2, 2}, Resize::crop, to);
    EXPECT_EQ(to, (std::vector<std::uint8_t>{20, 30, 20, 30}));
    // One colour stays that colour at any size, up to the borders.
    for (const std::uint32_t side : {1u, 3u, 7u, 31u}) {
        const io::Picture plain = plain_picture(13, 13, 3, {9, 90, 250});
        to.assign(std::size_t{side} * side * 3, 0);
        place_picture(plain, {side, side}, Resize::crop, to);
        for (std::size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], plain.pixels[i % 3]) << side << " " << i;
    }
    // Halved: means over areas, each pixel weighted by its distance.
    io::Picture steps{4, 2, 1, {0, 100, 100, 200, 0, 100, 100, 200}};
    to.assign(2, 0);
    place_picture(steps, {2, 1}, Resize::crop, to);
    // 0.75, 0.75 and 0.25 of 0, 100 and 100.
    EXPECT_EQ(to, (std::vector<std::uint8_t>{57, 143}));
}

TEST(PlacePicture, GivesTheSameBytesOnEveryProcessor) {
    std::uint64_t sum = 1469598103934665603u;
    std::uint32_t state = 1;
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (int i = 0; i < 400; ++i) {
        const std::uint32_t width = next() % 150 + 1, height = next() % 150 + 1;
        io::Picture picture{width, height, i % 2 != 0 ? 3u : 1u, {}};
        picture.pixels.resize(std::size_t{width} * height * picture.channels);
        for (std::uint8_t& byte : picture.pixels) byte = static_cast<std::uint8_t>(next());
        const std::uint32_t wide = next() % 70 + 1, high = next() % 70 + 1;
        std::vector<std::uint8_t> to(std::size_t{wide} * high * picture.channels);
        place_picture(picture, {wide, high}, i % 3 != 0 ? Resize::fit : Resize::crop, to);
        for (const std::uint8_t byte : to) sum = (sum ^ byte) * 1099511628211u;
    }
    EXPECT_EQ(sum, 0x9676a40a3a7d56e8u) << "of means added one by one, left to right and then down";
}

}  // namespace
}  // namespace millrace::data
