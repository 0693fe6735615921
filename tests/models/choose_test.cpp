// The policies of choose_nodes by hand: what every backend computes with the one rule they share.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "models/k1/ops/choose_rule.h"

namespace millrace::ops {
namespace {

/// A root with two children of two leaves each: 0 (1 (2, 3), 4 (5, 6)); node n is group n.
ChooseParams tree(ChoosePolicy policy, int count = 3) {
    ChooseParams params;
    params.policy = {policy};
    params.count = count;
    params.parent = {-1, 0, 1, 1, 0, 4, 4};
    params.group = {0, 1, 2, 3, 4, 5, 6};
    params.cooldown = 10;
    params.explore = 0;
    return params;
}

using Gains = std::vector<float>;

Gains chosen(const ChooseParams& params, const Gains& norms, std::vector<GroupState> groups = std::vector<GroupState>(7),
             std::uint32_t step = 100) {
    MemberState state;
    state.seed = 3;
    state.step = step;
    Gains gains(norms.size());
    std::vector<float> statistics(norms.size() * 4), carries(norms.size() * 3);
    choose_on_host<float>(params, 0, state, groups.data(), norms.data(), gains.data(), {statistics.data(), 4},
                          {carries.data(), 3});
    for (std::size_t n = 0; n < groups.size(); ++n) {
        EXPECT_EQ(groups[n].norm, norms[n]);
        EXPECT_EQ(params.zero_grad ? groups[n].gradient_gain : groups[n].gain, gains[n]);
        EXPECT_EQ(params.zero_grad ? groups[n].gain : groups[n].gradient_gain, 1);
    }
    return gains;
}

TEST(ChooseRule, TopkTakesTheLargestAndTheFirstOfEqualOnes) {
    EXPECT_EQ(chosen(tree(ChoosePolicy::topk), {1, 5, 2, 7, 3, 0, 6}), (Gains{0, 1, 0, 1, 0, 0, 1}));
    EXPECT_EQ(chosen(tree(ChoosePolicy::topk), {2, 2, 2, 2, 2, 2, 2}), (Gains{1, 1, 1, 0, 0, 0, 0}));
    EXPECT_EQ(chosen(tree(ChoosePolicy::topk), {1, 9, 2, 2, 2, 0, 2}), (Gains{0, 1, 1, 1, 0, 0, 0}));
    ChooseParams zero = tree(ChoosePolicy::topk, 1);
    zero.zero_grad = true;
    EXPECT_EQ(chosen(zero, {0, 0, 1, 0, 0, 0, 0}), (Gains{0, 0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(chosen(tree(ChoosePolicy::topk, 99), {0, 0, 0, 0, 0, 0, 0}), Gains(7, 1));
}

TEST(ChooseRule, PathsGoToTheLargestChildAndDampWhatIsAbove) {
    const Gains norms{1, 2, 1, 6, 3, 4, 5};  // 3 is the largest leaf, but below the smaller child
    EXPECT_EQ(chosen(tree(ChoosePolicy::path), norms), (Gains{0.05f, 0, 0, 0, 0.15f, 0, 1}));
    EXPECT_EQ(chosen(tree(ChoosePolicy::path), Gains(7, 1)), (Gains{0.05f, 0.15f, 1, 0, 0, 0, 0})) << "ties: the first child";
    const float sum = 1 + 3 + 5;
    EXPECT_EQ(chosen(tree(ChoosePolicy::path_dynamic), norms), (Gains{1 / sum, 0, 0, 0, 0.3f, 0, 1}));
}

TEST(ChooseRule, CooldownBarsUnlessAllAreBarred) {
    const Gains norms{1, 2, 1, 6, 3, 4, 5};
    std::vector<GroupState> groups(7);
    groups[4].last_applied = 95;
    EXPECT_EQ(chosen(tree(ChoosePolicy::path_cooldown), norms, groups), (Gains{0.05f, 0.15f, 0, 1, 0, 0, 0}));
    groups[4].last_applied = 90;  // ten steps ago: free again
    EXPECT_EQ(chosen(tree(ChoosePolicy::path_cooldown), norms, groups)[6], 1);
    groups[1].last_applied = groups[4].last_applied = 99;
    EXPECT_EQ(chosen(tree(ChoosePolicy::path_cooldown), norms, groups)[6], 1) << "all are barred";
}

TEST(ChooseRule, RandomChoicesAreSpreadAndOfTheRightSize) {
    std::vector<int> random(7), explored(7), balanced(7);
    ChooseParams exploring = tree(ChoosePolicy::path_cooldown);
    exploring.explore = 1;
    for (std::uint32_t step = 1; step <= 2000; ++step) {
        const Gains any = chosen(tree(ChoosePolicy::random_k), {9, 0, 0, 0, 0, 0, 0}, std::vector<GroupState>(7), step),
                    path = chosen(exploring, {1, 1, 1, 1, 9, 1, 9}, std::vector<GroupState>(7), step),
                    drawn = chosen(tree(ChoosePolicy::path_balance), Gains(7, 1), std::vector<GroupState>(7), step);
        EXPECT_EQ(std::count(any.begin(), any.end(), 1.0f), 3);
        for (std::size_t n = 0; n < 7; ++n) {
            random[n] += any[n] > 0 ? 1 : 0;
            explored[n] += path[n] == 1 ? 1 : 0;
            balanced[n] += drawn[n] == 1 ? 1 : 0;
        }
    }
    for (std::size_t n = 0; n < 7; ++n) EXPECT_NEAR(random[n], 2000 * 3 / 7.0, 110) << n;  // five standard deviations
    for (const std::size_t leaf : {2, 3, 5, 6}) {
        EXPECT_NEAR(explored[leaf], 500, 100) << leaf;
        EXPECT_NEAR(balanced[leaf], 500, 100) << leaf;
    }
}

TEST(ChooseRule, BalancePrefersNodesThatWereRarelyUpdated) {
    std::vector<GroupState> groups(7);
    groups[1].applied = 10000;
    int rare = 0;
    for (std::uint32_t step = 60000; step < 61000; ++step) {  // the temperature has fallen to 0.5
        const Gains gains = chosen(tree(ChoosePolicy::path_balance), Gains(7, 1), groups, step);
        rare += gains[5] == 1 || gains[6] == 1 ? 1 : 0;
    }
    // score 1 + 0.5 sqrt(ln 60,000) = 2.66 against about 0.02: exp(2.64 / 0.5) = 197 to 1.
    EXPECT_GT(rare, 970);
}

TEST(ChooseRule, StatisticsCountChoicesPathsAndLabels) {
    ChooseParams params = tree(ChoosePolicy::topk, 2);
    params.labels = {4, 40, 0};
    constexpr std::int64_t kColumns = kLabelColumn + 8;
    std::vector<float> statistics(7 * kColumns), carries(7 * (kColumns - 1)), gains(7);
    std::vector<GroupState> groups(7);
    groups[3].trainable = 0;
    const auto row = [&](std::size_t node) { return statistics.data() + node * kColumns; };
    MemberState state;
    const auto step = [&](std::uint32_t position, const Gains& norms) {
        state.position = position;
        choose_on_host<float>(params, 0, state, groups.data(), norms.data(), gains.data(), {statistics.data(), kColumns},
                              {carries.data(), kColumns - 1});
    };
    step(10, {1, 2, 1, 9, 3, 4, 5});  // chosen: 3, which is frozen, and 6; the path of the largest norms: 0, 4, 6
    step(11, {1, 8, 1, 9, 3, 4, 5});  // chosen: 1 and 3; path: 0, 1, 3
    step(0, {1, 2, 1, 9, 3, 6, 5});   // the end of the epoch. Chosen: 3 and 5; path: 0, 4, 5
    EXPECT_EQ(std::vector<float>(row(6) + 1, row(6) + kColumns), (std::vector<float>{1, 1, 0, 0, 0, 1, 1, 0, 1}));
    EXPECT_EQ(std::vector<float>(row(5) + 1, row(5) + kColumns), (std::vector<float>{1, 0, 0, 0, 1, 1, 1, 0, 1}));
    EXPECT_EQ(std::vector<float>(row(3) + 1, row(3) + kColumns), (std::vector<float>{1, 0, 0, 0, 0, 1, 1, 0, 1}));
    EXPECT_EQ(std::vector<float>(row(1) + 1, row(1) + kColumns), (std::vector<float>{0, 0, 1, 0, 0, 1, 1, 0, 1}));
    EXPECT_EQ(row(4)[kRecent], 3);
    EXPECT_NEAR(row(1)[kRecent], (2 + 0.01 * 6) * 0.99 + 0.01 * 2, 1e-6);
    const std::vector<float> before = statistics;
    step(20, {1, 2, 1, std::numeric_limits<float>::infinity(), 3, 6, 5});
    state.nonfinite = 1;
    step(20, {1, 2, 1, 9, 3, 6, 5});
    EXPECT_EQ(statistics, before) << "dropped steps count";
    EXPECT_EQ(carries, std::vector<float>(carries.size()));
    // f32 cannot count from 2^24 to the next.
    state.nonfinite = 0;
    row(6)[kWorst] = 2 * kCarry;  // of a checkpoint without carries
    row(6)[kLabelColumn + 1] = kCarry - 1;
    for (int i = 0; i < 3; ++i) step(20, {1, 2, 1, 0, 3, 4, 5});  // chosen: 5 and 6; path: 0, 4, 6
    const float* const carry = carries.data() + 6 * (kColumns - 1);
    const auto count = [&](std::int32_t column) { return row(6)[column] + double{kCarry} * double{carry[column - kWorst]}; };
    EXPECT_EQ(count(kWorst), 2.0 * kCarry + 3);
    EXPECT_EQ(count(kLabelColumn + 1), kCarry + 2.0);
}

TEST(ChooseRule, LabelsArePartsOfAnEpochOrEpochs) {
    ChooseRule rule;
    rule.labels = {3, 10, 0};
    MemberState state;
    const auto label = [&](std::uint32_t position, std::uint32_t epoch = 0) {
        state.position = position;
        state.epoch = epoch;
        return rule.label_of(state);
    };
    EXPECT_EQ(label(1), 0);
    EXPECT_EQ(label(4), 0);  // its last sample is number 3 of 0 to 9
    EXPECT_EQ(label(5), 1);
    EXPECT_EQ(label(8), 2);
    EXPECT_EQ(label(0, 1), 2) << "the last step of an epoch";
    rule.labels = {3, 10, 2};
    EXPECT_EQ(label(1, 0), 0);
    EXPECT_EQ(label(0, 2), 0) << "the last step of the second epoch";
    EXPECT_EQ(label(1, 2), 1);
    EXPECT_EQ(label(1, 5), 2);
    EXPECT_EQ(label(1, 6), 2) << "the last label goes on";
}

}  // namespace
}  // namespace millrace::ops
