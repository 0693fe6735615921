#include "io/picture_file.h"

#include <gtest/gtest.h>

#include "fuzz/picture_target.h"
#include "places.h"

namespace millrace::io {
namespace {

const Path kCorpus = millrace::testing::source_root() / "tests/fuzz/corpus-picture";

class PictureFile : public ::testing::Test {
protected:
    void SetUp() override {
        if (!can_read_pictures()) GTEST_SKIP() << "this build reads no pictures";
    }
    static Result<Picture> decode(const char* name, std::uint32_t channels, std::uint32_t least = 0) {
        return decode_picture(read_file(kCorpus / name).value(), name, channels, least, least);
    }
    static std::string refusal(const char* name) {
        const auto picture = decode(name, 3);
        EXPECT_FALSE(picture.ok()) << name;
        return picture.ok() ? "" : picture.error().text();
    }
};

TEST_F(PictureFile, WhatIsWrittenIsRead) {
    for (const std::uint32_t channels : {1u, 3u}) {
        Picture picture{5, 3, channels, {}};
        for (std::uint32_t i = 0; i < 15 * channels; ++i) picture.pixels.push_back(static_cast<std::uint8_t>(i * 5));
        const auto bytes = encode_png(picture);
        ASSERT_TRUE(bytes.ok());
        const auto again = decode_picture(bytes_of(*bytes), "x", channels);
        ASSERT_TRUE(again.ok()) << again.error().text();
        EXPECT_EQ(again->pixels, picture.pixels);
        EXPECT_EQ(picture_head(bytes_of(*bytes), "x")->colour, channels == 3);
    }
}

TEST_F(PictureFile, PngOfEveryKind) {
    EXPECT_EQ(decode("grey.png", 1)->pixels, (std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(decode("grey.png", 3)->pixels[3], 2);
    EXPECT_EQ(decode("bits.png", 1)->pixels, (std::vector<std::uint8_t>{255, 0, 255, 0, 255, 0, 255, 0, 255}));
    EXPECT_EQ(decode("deep.png", 1)->pixels, (std::vector<std::uint8_t>{128, 255})) << "16 bits";
    const auto alpha = decode("alpha.png", 3);
    EXPECT_GT(alpha->pixels[0], 0x10) << "half transparent, on white";
    EXPECT_EQ(decode("palette.png", 3)->pixels[0], 255) << "a colour of the palette that is transparent";
    EXPECT_EQ(decode("palette.png", 3)->pixels[9], 9);
}

TEST_F(PictureFile, JpegComesAtAReducedScaleWhereThatSuffices) {
    const auto whole = decode("progressive.jpg", 3), half = decode("progressive.jpg", 3, 8),
               eighth = decode("progressive.jpg", 1, 2);
    ASSERT_TRUE(whole.ok() && half.ok() && eighth.ok());
    EXPECT_EQ(whole->width, 24u);
    EXPECT_EQ(half->width, 12u);
    EXPECT_EQ(half->height, 8u);
    EXPECT_EQ(eighth->width, 3u);
    EXPECT_EQ(eighth->height, 2u);
    EXPECT_EQ(decode("progressive.jpg", 3, 9)->width, 24u);
    EXPECT_FALSE(picture_head(read_file(kCorpus / "grey.jpg").value(), "x")->colour);
}

TEST_F(PictureFile, DamageIsRefused) {
    EXPECT_NE(refusal("huge.png").find("200000 x 200000"), std::string::npos);
    EXPECT_NE(refusal("claims-more.jpg").find("60000 x 60000"), std::string::npos);
    EXPECT_NE(refusal("neither").find("neither PNG nor JPEG"), std::string::npos);
    for (const char* name : {"cut.png", "cut.jpg", "empty.png", "short-rows.png"})
        EXPECT_NE(refusal(name).find(name), std::string::npos);
}

TEST_F(PictureFile, CorpusIsReadWithoutABrokenPromise) {
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
        fuzz::read_picture_bytes(read_text(entry.path()).value());
        ++inputs;
    }
    EXPECT_GE(inputs, 18u);
}

}  // namespace
}  // namespace millrace::io
