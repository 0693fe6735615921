#include "bench/bench.h"

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

TEST(GpuActivity, IsOfTheFirstGpuSinceTheReadingBefore) {
    base::FakeClock clock;
    FakeGpu gpu(true);
    clock.advance(std::chrono::nanoseconds{1000});
    EXPECT_FALSE(read_activity(&gpu, clock).sm);
    clock.advance(std::chrono::nanoseconds{90});
    const GpuActivity activity = read_activity(&gpu, clock);
    EXPECT_EQ(activity.sm, 90);
    EXPECT_EQ(activity.tensor, 40);
}

TEST(GpuActivity, IsAbsentWithoutAGpu) {
    FakeGpu none(false);
    for (sense::Source* source : {static_cast<sense::Source*>(&none), static_cast<sense::Source*>(nullptr)}) {
        (void)read_activity(source);
        EXPECT_FALSE(read_activity(source).sm);
    }
}

}  // namespace
}  // namespace millrace::bench
