#include "data/images/garments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace millrace::data {
namespace {

using Image = std::array<std::uint8_t, kGarmentPixels>;

Image garment(std::uint32_t index, std::uint64_t seed = kGarmentSeed) {
    Image image;
    draw_garment(seed, index, image);
    return image;
}

TEST(Garments, SameSeedAndIndexGiveTheSameImage) {
    EXPECT_EQ(garment(17), garment(17));
    EXPECT_NE(garment(17), garment(27));
    EXPECT_NE(garment(17), garment(17, 43));
    EXPECT_NE(garment(7), garment(kGarmentTestBase + 7));
}

TEST(Garments, LabelsCountThroughTheClasses) {
    for (std::uint32_t i = 0; i < 30; ++i) EXPECT_EQ(garment_label(i), i % 10);
    EXPECT_EQ(garment_label(kGarmentTestBase), 0);
}

// The set is part of the documentation of every accuracy: a change of the generator must be deliberate. Another compiler may move
// a pixel by one grey level, hence the middle row of one image per class and not a checksum.
TEST(Garments, MiddleRowsArePinned) {
    static const std::vector<std::array<int, kGarmentSide>> kRows{
#include "garments_rows.inc"
    };
    ASSERT_EQ(kRows.size(), kGarmentClasses);
    for (std::uint32_t label = 0; label < kGarmentClasses; ++label) {
        const Image image = garment(label);
        for (std::uint32_t x = 0; x < kGarmentSide; ++x)
            EXPECT_LE(std::abs(kRows[label][x] - image[14 * kGarmentSide + x]), 1) << "class " << label << ", column " << x;
    }
}

// Learnable, yet not trivial: the weakest classifier there is does far better than chance and far from perfect.
TEST(Garments, NearestClassMeanIsRightMoreOftenThanChance) {
    constexpr std::uint32_t kTrain = 2000, kTest = 500;
    std::vector<std::vector<double>> means(kGarmentClasses, std::vector<double>(kGarmentPixels));
    double brightness = 0;
    for (std::uint32_t i = 0; i < kTrain; ++i) {
        const Image image = garment(i);
        for (std::uint32_t p = 0; p < kGarmentPixels; ++p) means[i % 10][p] += image[p] / 255.0 / (kTrain / 10);
        brightness += std::accumulate(image.begin(), image.end(), 0.0) / 255 / kGarmentPixels / kTrain;
    }
    EXPECT_NEAR(brightness, 0.18, 0.01);
    int right = 0;
    for (std::uint32_t i = 0; i < kTest; ++i) {
        const Image image = garment(kGarmentTestBase + i);
        std::array<double, kGarmentClasses> away{};
        for (std::uint32_t label = 0; label < kGarmentClasses; ++label)
            for (std::uint32_t p = 0; p < kGarmentPixels; ++p) away[label] += std::pow(image[p] / 255.0 - means[label][p], 2);
        right += std::min_element(away.begin(), away.end()) - away.begin() == garment_label(kGarmentTestBase + i);
    }
    EXPECT_GT(right, kTest / 2);
    EXPECT_LT(right, kTest * 9 / 10);
    RecordProperty("right", right);
}

}  // namespace
}  // namespace millrace::data
