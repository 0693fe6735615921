#include <gtest/gtest.h>

#include <limits>

#include "search/scheduler.h"

namespace millrace::search {
namespace {

TEST(Rungs, GrowByTheFactorAndEndAtTheLast) {
    EXPECT_EQ((Rungs{1, 3, 27}.steps()), (std::vector<int64_t>{1, 3, 9, 27}));
    EXPECT_EQ((Rungs{2, 4, 30}.steps()), (std::vector<int64_t>{2, 8, 30}));
    EXPECT_EQ((Rungs{5, 2, 5}.steps()), (std::vector<int64_t>{5}));
    EXPECT_EQ((Rungs{1, 10, std::numeric_limits<int64_t>::max()}.steps().size()), 20u);
}

TEST(Hyperband, BudgetsOfTheBracketsByHand) {
    const std::vector<Bracket> brackets = hyperband_brackets({1, 3, 81});
    using Rungs81 = std::vector<Bracket::Rung>;
    ASSERT_EQ(brackets.size(), 5u);
    EXPECT_EQ(brackets[0].rungs, (Rungs81{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}}));
    EXPECT_EQ(brackets[1].rungs, (Rungs81{{34, 3}, {11, 9}, {3, 27}, {1, 81}}));
    EXPECT_EQ(brackets[2].rungs, (Rungs81{{15, 9}, {5, 27}, {1, 81}}));
    EXPECT_EQ(brackets[3].rungs, (Rungs81{{8, 27}, {2, 81}}));
    EXPECT_EQ(brackets[4].rungs, (Rungs81{{5, 81}}));
}

}  // namespace
}  // namespace millrace::search
