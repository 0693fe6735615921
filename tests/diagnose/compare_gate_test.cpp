// When the gate of --fail-if-slower abstains.

#include <gtest/gtest.h>

#include <array>

#include "diagnose/compare/compare.h"

namespace millrace::diagnose {
namespace {

/// Sixteen blocks of half a second, by turns of so many steps.
CompareSide turns(double odd, double even) {
    CompareSide side;
    for (int at = 0; at < 16; ++at)
        side.blocks.push_back({at * Time{500'000'000}, (at + 1) * Time{500'000'000}, (at % 2 == 0 ? odd : even) + 1e-3 * at});
    return side;
}

TEST(CompareGate, AbstainsWhereALossIsMeasuredButNotCertain) {
    // Half of the blocks are as fast as before: no p below a thousandth, however long runs like these are.
    const CompareSide before = turns(10, 10), after = turns(8.5, 10);
    const Comparison comparison = compare(before, after);
    ASSERT_EQ(comparison.verdict, Verdict::kNoDifference);
    ASSERT_FALSE(comparison.more_seconds);
    ASSERT_LT(*comparison.change, -0.05);
    EXPECT_TRUE(is_open(comparison, 0.05));
    EXPECT_FALSE(is_slower_by(comparison, 0.05));
    EXPECT_FALSE(is_open(comparison, 0.10)) << "less than is allowed";
    EXPECT_FALSE(is_open(compare(after, before), 0.05)) << "a gain";
    EXPECT_FALSE(is_open(compare(before, turns(9, 9)), 0.05)) << "it is certain";
    EXPECT_FALSE(is_open(compare(before, turns(9.9, 9.95)), 0)) << "less than the least effect";
    EXPECT_TRUE(is_open(compare(std::array{before, turns(11, 11)}, std::array{after}), 0.05)) << "recordings that lie far apart";
}

}  // namespace
}  // namespace millrace::diagnose
