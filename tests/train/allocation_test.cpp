#include <malloc.h>

#include <memory>

#include "train/allocation_hook.h"
#include "train/setup.h"
#include "train/tiny_run.h"

namespace millrace::train {
namespace {

class Allocation : public TinyRun {
protected:
    /// Allocations of `count` steps after a warm-up, over epochs with tails.
    long during_steps(const std::vector<std::string>& settings, std::uint64_t count) {
        auto setup = set_up(recipe(settings), true);
        EXPECT_TRUE(setup.ok()) << setup.error().text();
        Engine& engine = *setup->engine;
        const auto per_epoch = static_cast<std::uint64_t>(engine.epoch().count());
        for (std::uint64_t i = 0; i < per_epoch; ++i) engine.launch_step(i);
        start_counting_allocations();
        for (std::uint64_t i = 0; i < count; ++i) engine.launch_step(i % per_epoch);
        engine.backend().synchronize();
        return stop_counting_allocations();
    }
};

TEST_F(Allocation, HookSeesAnAllocation) {
    start_counting_allocations();
    const auto block = std::make_unique<std::vector<int>>(1000);
    EXPECT_EQ(stop_counting_allocations(), 2);
}

TEST_F(Allocation, SteadyStepsAskForNothing) {
    EXPECT_EQ(during_steps({}, 30), 0);
    EXPECT_EQ(during_steps({"members=3", "optim.clip_norm=1", "optim.schedule=cosine"}, 15), 0);
    EXPECT_EQ(during_steps({"train.accumulate=3", "train.batch=32", "data.augment=true"}, 15), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Allocation, HeapStaysTheSameFromEpochToEpoch) {
    auto setup = set_up(recipe({}), true);
    ASSERT_TRUE(setup.ok());
    Engine& engine = *setup->engine;
    const auto epoch = [&] {
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(engine.epoch().count()); ++i) engine.launch_step(i);
        engine.backend().synchronize();
        return mallinfo2().uordblks;
    };
    epoch();
    const std::size_t before = epoch();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(epoch(), before);
}
#endif

}  // namespace
}  // namespace millrace::train
