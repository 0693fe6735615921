#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::base {
namespace {

TEST(Half, EveryValueSurvives) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float value = from_half(static_cast<std::uint16_t>(bits));
        if (std::isnan(value))
            EXPECT_TRUE(std::isnan(from_half(to_half(value))));
        else
            ASSERT_EQ(to_half(value), bits) << value;
    }
}

TEST(Half, RoundsToTheNearestTiesToEven) {
    for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
        const float low = from_half(static_cast<std::uint16_t>(bits)), high = from_half(static_cast<std::uint16_t>(bits + 1));
        const float middle = low + (high - low) / 2;  // exact in a float
        ASSERT_EQ(to_half(middle), bits + bits % 2) << low;
        ASSERT_EQ(to_half(std::nextafter(middle, 0.0f)), bits) << low;
        ASSERT_EQ(to_half(std::nextafter(middle, 1e6f)), bits + 1) << low;
        ASSERT_EQ(to_half(-middle), (bits + bits % 2) | 0x8000u) << low;
    }
}

TEST(Half, KnownValues) {
    EXPECT_EQ(to_half(1), 0x3C00);
    EXPECT_EQ(to_half(-200), 0xDA40);
    EXPECT_EQ(to_half(65519.99f), 0x7BFF);
    EXPECT_EQ(to_half(65520), 0x7C00);
    EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()), 0xFC00);
    EXPECT_EQ(from_half(0x0001), 0x1p-24f);
}

}  // namespace
}  // namespace millrace::base
