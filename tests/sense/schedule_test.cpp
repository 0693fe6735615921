#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "fake_clock.h"
#include "sense/sampler.h"

namespace millrace::sense {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(Schedule, TenThousandTicksWithVaryingReadingTimesDoNotDrift) {
    const nanoseconds start = milliseconds(12345), interval = milliseconds(100);
    base::FakeClock clock(start);
    Schedule schedule(start, interval);
    std::uint64_t wakeups = 0;
    for (std::uint64_t tick = 0; tick < 10'000; ++tick) {
        const nanoseconds due = schedule.due();
        ASSERT_EQ(due, start + interval * static_cast<std::int64_t>(tick));
        const nanoseconds oversleep = nanoseconds((tick * 7919) % 4'000'000);
        clock.advance(due - clock.now() + oversleep);
        const Schedule::Tick taken = schedule.take(clock.now());
        EXPECT_EQ(taken.sequence, tick);
        EXPECT_EQ(taken.missed, 0u);
        EXPECT_EQ(taken.late, oversleep);
        clock.advance(nanoseconds((tick * 104729) % 90'000'000));  // the reading
        ++wakeups;
    }
    EXPECT_EQ(wakeups, 10'000u);
}

TEST(Schedule, SlowReadingsMissExactlyTheTicksThatPassed) {
    const nanoseconds interval = milliseconds(10);
    base::FakeClock clock;
    Schedule schedule(clock.now(), interval);
    std::uint64_t taken = 0, missed = 0, last = 0;
    for (int reading = 0; reading < 1000; ++reading) {
        if (clock.now() < schedule.due()) clock.advance(schedule.due() - clock.now());
        const Schedule::Tick tick = schedule.take(clock.now());
        EXPECT_LT(tick.late, interval);
        EXPECT_EQ(tick.late, clock.now() % interval);
        if (taken > 0) {
            EXPECT_EQ(tick.sequence, last + 1 + tick.missed);
        }
        last = tick.sequence;
        ++taken;
        missed += tick.missed;
        clock.advance(nanoseconds((reading * 1'234'567LL) % 47'000'000));
    }
    EXPECT_GT(missed, 0u);
    EXPECT_EQ(taken + missed, last + 1);
}

TEST(Schedule, AReadingThatEndsOnTheNextTickMissesNothing) {
    Schedule schedule(milliseconds(0), milliseconds(10));
    EXPECT_EQ(schedule.take(milliseconds(0)).sequence, 0u);
    const Schedule::Tick exact = schedule.take(milliseconds(10));
    EXPECT_EQ(exact.sequence, 1u);
    EXPECT_EQ(exact.missed, 0u);
    EXPECT_EQ(exact.late, nanoseconds(0));
    const Schedule::Tick skipped = schedule.take(milliseconds(30));
    EXPECT_EQ(skipped.sequence, 3u);
    EXPECT_EQ(skipped.missed, 1u);
}

class FakeSource final : public Source {
public:
    FakeSource(base::FakeClock& clock, nanoseconds takes) : clock_(clock), takes_(takes) {}
    [[nodiscard]] const MachineFacts& facts() const override { return facts_; }
    void read(nanoseconds, Sample& sample) noexcept override {
        clock_.advance(takes_);
        sample.cpu.utilization = 42.0;
    }

private:
    MachineFacts facts_;
    base::FakeClock& clock_;
    nanoseconds takes_;
};

/// Lets the test wait until enough samples came, whatever time that takes.
class Counter {
public:
    void add(const Sample& sample) {
        const std::lock_guard lock(mutex_);
        samples_.push_back(sample);
        changed_.notify_all();
    }
    std::vector<Sample> wait_for(std::size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return samples_.size() >= count; });
        return samples_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Sample> samples_;
};

TEST(Sampler, FakeClockCountsEveryMissedTick) {
    base::FakeClock clock(milliseconds(5));
    FakeSource source(clock, milliseconds(3));
    Counter counter;
    // Each round takes 3 ms to read and 22 ms in the receiver: 25 ms of a 10 ms interval, so no round has to sleep.
    Sampler sampler(
        source, milliseconds(10),
        [&](const Sample& sample) {
            counter.add(sample);
            clock.advance(milliseconds(22));
        },
        clock);
    const std::vector<Sample> samples = counter.wait_for(5);
    sampler.stop();
    const std::uint64_t expected[] = {0, 2, 5, 7, 10};
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(samples[i].sequence, expected[i]);
        EXPECT_EQ(samples[i].time, milliseconds(5 + 25 * static_cast<int>(i)));
        EXPECT_EQ(samples[i].late, milliseconds(i % 2 == 0 ? 0 : 5));
        EXPECT_EQ(samples[i].took, milliseconds(3));
        EXPECT_DOUBLE_EQ(samples[i].wall, 0.005 + 0.025 * static_cast<double>(i));
        EXPECT_EQ(samples[i].cpu.utilization, 42.0);
    }
    const Sampler::Costs costs = sampler.costs();
    EXPECT_GE(costs.samples, 5u);
    const std::vector<Sample> all = counter.wait_for(0);
    EXPECT_EQ(costs.samples, all.size());
    EXPECT_EQ(costs.samples + costs.missed, all.back().sequence + 1);
}

TEST(Sampler, RealClockKeepsOrderAndStopsBetweenTicks) {
    base::FakeClock idle;
    FakeSource source(idle, nanoseconds(0));
    Counter counter;
    Sampler sampler(source, std::chrono::microseconds(200), [&](const Sample& sample) { counter.add(sample); });
    const std::vector<Sample> samples = counter.wait_for(20);
    sampler.stop();
    const std::size_t after_stop = counter.wait_for(0).size();
    for (std::size_t i = 1; i < samples.size(); ++i) {
        EXPECT_GT(samples[i].sequence, samples[i - 1].sequence);
        EXPECT_GT(samples[i].time, samples[i - 1].time);
    }
    EXPECT_EQ(samples[0].sequence, 0u);
    EXPECT_EQ(sampler.costs().samples, after_stop);
    EXPECT_GT(sampler.costs().cpu_seconds, 0.0);
    sampler.stop();  // twice is harmless
}

TEST(Sampler, StopsAtOnceWhileWaitingForADistantTick) {
    base::FakeClock idle;
    FakeSource source(idle, nanoseconds(0));
    Counter counter;
    Sampler sampler(source, std::chrono::hours(1), [&](const Sample& sample) { counter.add(sample); });
    counter.wait_for(1);
    sampler.stop();  // would hang for an hour otherwise
    EXPECT_EQ(counter.wait_for(0).size(), 1u);
}

TEST(Throttle, TextNamesEachCauseOnce) {
    EXPECT_EQ(throttle_text(0), "");
    EXPECT_EQ(throttle_text(kThrottleThermal), "thermal");
    EXPECT_EQ(throttle_text(kThrottlePowerCap | kThrottleThermal), "power cap, thermal");
    EXPECT_EQ(throttle_text(kThrottleHardware | kThrottleSyncBoost), "hardware slow-down, sync boost");
    EXPECT_EQ(throttle_text(1u << 30), "");
}

}  // namespace
}  // namespace millrace::sense
