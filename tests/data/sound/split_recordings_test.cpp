#include "data/sound/sound_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace millrace::data {
namespace {

using Counts = std::array<std::uint32_t, 3>;
constexpr Shares kUsual{0.7, 0.2, 0.1};

TEST(SplitRecordings, SharesAreRead) {
    EXPECT_EQ(parse_shares("0.7,0.2,0.1").value(), kUsual);
    EXPECT_EQ(parse_shares(" 1 , 0, 0").value(), (Shares{1, 0, 0}));
    for (const char* wrong : {"", "0.7", "0.7,0.3", "0.5,0.2,0.1", "0,0.5,0.5", "1.2,-0.1,-0.1", "a,b,c", "0.7,0.2,0.1,0",
                              "nan,0.2,0.1", "0.7;0.2;0.1", "inf,0,0"}) {
        const auto shares = parse_shares(wrong);
        ASSERT_FALSE(shares.ok()) << wrong;
        EXPECT_NE(shares.error().message.find("--split 0.7,0.2,0.1"), std::string::npos) << shares.error().text();
        EXPECT_EQ(shares.error().exit_status, 2);
    }
}

TEST(SplitRecordings, EveryClassIsSharedOut) {
    EXPECT_EQ(share_out(1000, kUsual), (Counts{700, 200, 100}));
    EXPECT_EQ(share_out(10, kUsual), (Counts{7, 2, 1}));
    EXPECT_EQ(share_out(0, kUsual), (Counts{0, 0, 0}));
    EXPECT_EQ(share_out(1, kUsual), (Counts{1, 0, 0}));
    EXPECT_EQ(share_out(2, kUsual), (Counts{1, 1, 0}));
    EXPECT_EQ(share_out(3, kUsual), (Counts{1, 1, 1}));
    EXPECT_EQ(share_out(1, {0.1, 0.1, 0.8}), (Counts{1, 0, 0}));
    EXPECT_EQ(share_out(5, {0.8, 0.2, 0}), (Counts{4, 1, 0}));
    for (std::uint32_t count = 0; count < 200; ++count)
        for (const Shares& shares : {kUsual, Shares{0.34, 0.33, 0.33}, Shares{0.98, 0.01, 0.01}, Shares{0.01, 0.01, 0.98}}) {
            const Counts given = share_out(count, shares);
            ASSERT_EQ(std::accumulate(given.begin(), given.end(), 0u), count);
            for (std::size_t part = 0; part < 3; ++part) {
                ASSERT_NEAR(given[part], count * shares[part], 2.1) << count;
                ASSERT_TRUE(count < 3 || given[part] > 0) << count;
            }
            ASSERT_TRUE(count == 0 || given[0] > 0);
        }
}

TEST(SplitRecordings, PartsAreDisjointStratifiedAndSeeded) {
    std::vector<std::uint32_t> labels(100, 0);
    std::fill(labels.begin() + 60, labels.begin() + 90, 1);
    std::fill(labels.begin() + 90, labels.end(), 2);
    const auto parts = split_recordings(labels, 3, kUsual, 7);
    std::set<std::uint32_t> all;
    for (std::size_t part = 0; part < 3; ++part) {
        Counts of_class{};
        for (const std::uint32_t i : parts[part]) {
            ++of_class[labels[i]];
            EXPECT_TRUE(all.insert(i).second) << i;
        }
        const Counts expected[]{{42, 21, 7}, {12, 6, 2}, {6, 3, 1}};
        EXPECT_EQ(of_class, expected[part]);
    }
    EXPECT_EQ(all.size(), 100u);
    EXPECT_EQ(parts, split_recordings(labels, 3, kUsual, 7));
    EXPECT_NE(parts, split_recordings(labels, 3, kUsual, 8));
    const auto early = std::count_if(parts[0].begin(), parts[0].begin() + 35, [&](std::uint32_t i) { return labels[i] == 0; });
    EXPECT_GT(early, 10);  // classes are mixed, not one after the other
    EXPECT_LT(early, 32);
}

}  // namespace
}  // namespace millrace::data
