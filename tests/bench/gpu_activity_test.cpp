#include "bench/gpu_activity.h"

#include <gtest/gtest.h>

#include "fake_clock.h"

namespace millrace::bench {
namespace {

/// One GPU whose counters, like GPM's, tell of the time since the reading before.
class FakeGpu final : public sense::Source {
public:
    explicit FakeGpu(bool present) {
        if (present) facts_.gpus.resize(2);
    }
    [[nodiscard]] const sense::MachineFacts& facts() const override { return facts_; }
    void read(std::chrono::nanoseconds now, sense::Sample& sample) noexcept override {
        sample.gpus.resize(facts_.gpus.size());
        if (before_ && !sample.gpus.empty()) {
            sample.gpus[0].sm_active = static_cast<double>((now - *before_).count());
            sample.gpus[0].tensor_active = 40;
            sample.gpus[1].sm_active = 1;
        }
        before_ = now;
    }

private:
    sense::MachineFacts facts_;
    std::optional<std::chrono::nanoseconds> before_;
};

TEST(GpuActivityMeter, TellsOfTheFirstGpuSinceBegin) {
    base::FakeClock clock;
    GpuActivityMeter meter(std::make_unique<FakeGpu>(true), clock);
    clock.advance(std::chrono::nanoseconds{1000});
    meter.begin();
    clock.advance(std::chrono::nanoseconds{90});
    const GpuActivity activity = meter.since_begin();
    EXPECT_EQ(activity.sm, 90);
    EXPECT_EQ(activity.tensor, 40);
}

TEST(GpuActivityMeter, IsAbsentWithoutAGpu) {
    GpuActivityMeter none(std::make_unique<FakeGpu>(false)), nothing(nullptr);
    for (GpuActivityMeter* meter : {&none, &nothing}) {
        meter->begin();
        EXPECT_FALSE(meter->since_begin().sm);
    }
}

}  // namespace
}  // namespace millrace::bench
