#include "record/cpu_sampler.h"

#include <gtest/gtest.h>

namespace millrace::record {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// Looks for ten seconds, and how often at which threads.
struct Looks {
    double main_hz = 0, all_hz = 0, share = 0;
};
Looks looks(SamplingPace& pace, nanoseconds main, nanoseconds all) {
    nanoseconds passed{}, looking{};
    double rounds = 0, full = 0;
    while (passed < std::chrono::seconds{10}) {
        const nanoseconds took = pace.is_for_all() ? all : main;
        ++rounds, full += pace.is_for_all() ? 1 : 0;
        pace.looked(took);
        looking += took;
        passed += std::max(took, pace.round());
    }
    const double seconds = std::chrono::duration<double>(passed).count();
    return {rounds / seconds, full / seconds, std::chrono::duration<double>(looking).count() / seconds};
}

TEST(SamplingPace, CheapLooksComeAHundredAndTwentyTimesASecond) {
    SamplingPace pace;
    const Looks seen = looks(pace, microseconds{60}, microseconds{400});
    EXPECT_NEAR(seen.main_hz, 100, 1);
    EXPECT_NEAR(seen.all_hz, 20, 1);
}

TEST(SamplingPace, ManyWorkersDoNotMakeLooksAtTheMainThreadRarer) {
    SamplingPace pace;
    const Looks eight = looks(pace, microseconds{60}, milliseconds{4});
    EXPECT_NEAR(eight.main_hz, 100, 1);
    EXPECT_GT(eight.all_hz, 13);
    const Looks many = looks(pace, microseconds{60}, milliseconds{9});
    EXPECT_NEAR(many.main_hz, 100, 1);
    EXPECT_GT(many.all_hz, 5);
    EXPECT_LT(many.share, 0.08);
    const Looks crowd = looks(pace, microseconds{60}, milliseconds{300});
    EXPECT_GT(crowd.all_hz, 0.5) << "but not never";
}

TEST(SamplingPace, DearLooksAtTheMainThreadGetRarerAndComeBack) {
    SamplingPace pace;
    const Looks dear = looks(pace, milliseconds{8}, milliseconds{9});
    EXPECT_LT(dear.main_hz, 26);
    EXPECT_GT(dear.main_hz, 20);
    const Looks worst = looks(pace, milliseconds{150}, milliseconds{151});
    EXPECT_GT(worst.main_hz, 5);
    EXPECT_GT(worst.all_hz, 1);
    EXPECT_NEAR(looks(pace, microseconds{60}, microseconds{400}).main_hz, 100, 3);
}

TEST(SamplingPace, OneInterruptedLookSaysNothing) {
    SamplingPace pace;
    looks(pace, microseconds{60}, microseconds{400});
    for (const bool all : {false, true}) {
        while (pace.is_for_all() != all) pace.looked(microseconds{60});
        pace.looked(milliseconds{50});
        EXPECT_EQ(pace.round(), milliseconds{10});
        EXPECT_EQ(pace.rounds(), 5u);
    }
}

}  // namespace
}  // namespace millrace::record
