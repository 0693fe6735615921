#include "report/trace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::report {
namespace {

TEST(Trace, KeepsEveryTickUntilColumnsRunOut) {
    Trace trace;
    for (std::uint64_t tick = 0; tick < Trace::kColumns; ++tick) trace.add(tick, static_cast<double>(tick));
    EXPECT_EQ(trace.ticks_per_column(), 1u);
    ASSERT_EQ(trace.columns().size(), Trace::kColumns);
    EXPECT_EQ(trace.columns()[17].mean(), 17);
}

TEST(Trace, MergesNeighboursAndKeepsExtremes) {
    Trace trace;
    const std::uint64_t ticks = 1'000'003;
    for (std::uint64_t tick = 0; tick < ticks; ++tick) trace.add(tick, tick == 777'777 ? 99.0 : 1.0);
    EXPECT_LE(trace.columns().size(), Trace::kColumns);
    EXPECT_GE(trace.columns().size() * trace.ticks_per_column(), ticks);
    std::uint64_t count = 0;
    for (const Trace::Column& column : trace.columns()) count += column.count;
    EXPECT_EQ(count, ticks);
    EXPECT_EQ(trace.high(), 99);
    EXPECT_EQ(trace.columns()[777'777 / trace.ticks_per_column()].high, 99);
    EXPECT_EQ(trace.columns()[777'777 / trace.ticks_per_column()].low, 1);
}

TEST(Trace, AbsentAndMissedTicksAreGaps) {
    Trace trace;
    trace.add(0, 5.0);
    trace.add(1, std::nullopt);
    trace.add(2, std::nan(""));
    trace.add(5, 7.0);
    ASSERT_EQ(trace.columns().size(), 6u);
    for (const std::size_t gap : {1u, 2u, 3u, 4u}) EXPECT_EQ(trace.columns()[gap].count, 0u);
    EXPECT_FALSE(trace.empty());
    EXPECT_TRUE(Trace{}.empty());
}

TEST(Trace, AJumpFarAheadStaysBounded) {
    Trace trace;
    trace.add(0, 1.0);
    trace.add(std::uint64_t{1} << 40, 2.0);
    EXPECT_LE(trace.columns().size(), Trace::kColumns);
    EXPECT_EQ(trace.columns().front().mean(), 1);
    EXPECT_EQ(trace.columns().back().mean(), 2);
}

}  // namespace
}  // namespace millrace::report
