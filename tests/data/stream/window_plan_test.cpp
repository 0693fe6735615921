// The order of streamed rows: every row once per epoch, whatever does not divide.

#include "data/stream/window_feed.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/gather/gather.h"

namespace millrace::data {
namespace {

WindowPlan plan_of(std::uint32_t rows, std::uint32_t block, std::uint32_t most) {
    WindowPlan plan{.seed = 9, .rows = rows, .block_rows = block, .window_blocks = 1};
    plan.divide(most);
    return plan;
}

/// The rows of the set that a member sees in an epoch, in its order.
std::vector<std::uint32_t> order_of(const WindowPlan& plan, std::uint64_t seed, std::uint32_t epoch) {
    ops::GatherFeaturesParams params;
    params.samples = plan.rows;
    params.window = plan.window_rows();
    std::vector<std::uint32_t> order;
    for (std::uint32_t q = 0; q < plan.rows; ++q) {
        const std::uint32_t window = q / plan.window_rows();
        const std::uint32_t at = ops::window_row(params, seed, epoch, q) % plan.window_rows();
        const auto blocks = plan.blocks_of(epoch, window);
        order.push_back(blocks.at(at / plan.block_rows) * plan.block_rows + at % plan.block_rows);
    }
    return order;
}

TEST(WindowPlan, EveryRowComesOncePerEpochForEveryMember) {
    for (const auto& [rows, block, most] :
         {std::tuple{97u, 7u, 3u}, {101u, 101u, 1u}, {60u, 6u, 5u}, {1u, 1u, 1u}, {89u, 2u, 44u}, {31u, 10u, 2u}, {13u, 5u, 9u}})
        for (const std::uint64_t seed : {70u, 71u})
            for (const std::uint32_t epoch : {0u, 1u, 5u}) {
                const auto order = order_of(plan_of(rows, block, most), seed, epoch);
                const std::set<std::uint32_t> seen(order.begin(), order.end());
                EXPECT_EQ(seen.size(), rows) << rows << " rows in blocks of " << block << ", epoch " << epoch;
                EXPECT_LT(*seen.rbegin(), rows);
            }
}

TEST(WindowPlan, OrdersDifferByMemberAndEpochAndMembersShareWindows) {
    const WindowPlan plan = plan_of(97, 7, 3);
    ASSERT_GT(plan.windows(), 2u);
    EXPECT_NE(order_of(plan, 70, 0), order_of(plan, 71, 0));
    EXPECT_NE(order_of(plan, 70, 0), order_of(plan, 70, 1));
    EXPECT_NE(plan.blocks_of(0, 0), plan.blocks_of(1, 0));
    const auto first = order_of(plan, 70, 2), second = order_of(plan, 71, 2);
    for (std::uint32_t begin = 0; begin < plan.rows; begin += plan.window_rows()) {
        const auto end = std::min(plan.rows, begin + plan.window_rows());
        EXPECT_EQ(std::set(first.begin() + begin, first.begin() + end), std::set(second.begin() + begin, second.begin() + end));
    }
}

TEST(WindowPlan, ThePartialBlockComesLastAndWindowsAreAboutEqual) {
    const WindowPlan plan = plan_of(97, 7, 3);
    for (const std::uint32_t epoch : {0u, 1u, 2u, 3u}) EXPECT_EQ(plan.blocks_of(epoch, plan.windows() - 1).back(), 13u);
    EXPECT_EQ(plan.rows_of_block(13), 6u);
    EXPECT_EQ(plan_of(70, 7, 9).window_blocks, 5u) << "two windows of five blocks, not of nine and one";
}

TEST(WindowPlan, EvaluationKeepsTheOrderOfTheFile) {
    WindowPlan plan = plan_of(23, 4, 2);
    plan.shuffle = false;
    EXPECT_EQ(plan.blocks_of(0, 1), (std::vector<std::uint32_t>{2, 3}));
    EXPECT_EQ(plan.blocks_of(7, 2), (std::vector<std::uint32_t>{4, 5}));
}

TEST(WindowPlan, MixTellsWindowsOfOneClassAndTheLargestDeviation) {
    WindowPlan plan = plan_of(40, 10, 2);
    plan.shuffle = false;
    const std::vector<std::uint32_t> sorted{10, 0, 10, 0, 0, 10, 0, 10}, mixed{5, 5, 7, 3, 5, 5, 3, 7};
    EXPECT_EQ(mix_of(plan, 0, sorted, 2).of_one_class, 2u);
    EXPECT_DOUBLE_EQ(mix_of(plan, 0, sorted, 2).deviation, 0.5);
    EXPECT_EQ(mix_of(plan, 0, mixed, 2).of_one_class, 0u);
    EXPECT_DOUBLE_EQ(mix_of(plan, 0, mixed, 2).deviation, 0.1);
    EXPECT_EQ(mix_of(plan, 0, std::vector<std::uint32_t>{10, 0, 10, 0, 10, 0, 10, 0}, 2).of_one_class, 0u)
        << "the set itself has one class";
}

}  // namespace
}  // namespace millrace::data
