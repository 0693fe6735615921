#include "base/clock.h"

#include <gtest/gtest.h>

#include "fake_clock.h"

namespace millrace::base {
namespace {

using namespace std::chrono_literals;

TEST(Clock, FakeStandsStillUntilAdvanced) {
    FakeClock clock(5s);
    const Clock& reader = clock;
    EXPECT_EQ(reader.now(), 5s);
    EXPECT_EQ(reader.now(), 5s);
    const auto wall = reader.wall();
    clock.advance(250ms);
    EXPECT_EQ(reader.now(), 5250ms);
    EXPECT_EQ(reader.wall() - wall, 250ms);
}

TEST(Clock, SteadyNeverGoesBack) {
    const Clock& clock = SteadyClock::shared();
    auto last = clock.now();
    for (int i = 0; i < 1000; ++i) {
        const auto next = clock.now();
        ASSERT_GE(next, last);
        last = next;
    }
}

}  // namespace
}  // namespace millrace::base
