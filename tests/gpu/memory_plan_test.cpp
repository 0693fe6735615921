// The plan of an energy flow run against what the GPU's free memory says.

#include <gtest/gtest.h>

#include <cmath>

#include "data/pairs/resident_pairs.h"
#include "models/energy_flow/energy_flow.h"
#include "train/engine.h"

namespace millrace::train {
namespace {

constexpr std::uint32_t kPairs = 64;

std::shared_ptr<const data::PairSet> pairs(std::int32_t width) {
    auto set = std::make_shared<data::PairSet>();
    set->name = "waves";
    set->count = kPairs;
    set->dimensions = static_cast<std::uint32_t>(width);
    for (std::vector<float>* rows : {&set->inputs, &set->targets})
        for (std::size_t i = 0; i < std::size_t{kPairs} * set->dimensions; ++i)
            rows->push_back(0.05f * std::sin(1.3f * static_cast<float>(i) + (rows == &set->inputs ? 0.1f : 0.7f)));
    for (std::uint32_t i = 0; i < kPairs; ++i)
        (i < 16 ? set->part(data::Part::validation) : set->part(data::Part::train)).push_back(static_cast<std::int32_t>(i));
    return set;
}

class GpuMemoryPlan : public ::testing::TestWithParam<models::Recompute> {
protected:
    void SetUp() override {
        if (auto gpu = ops::cuda_available(); !gpu.ok()) GTEST_SKIP() << gpu.error().text();
    }

    /// 50 x 50 x 20, hidden 512, two layers, batches of 16: gigabytes, so that what the libraries take besides hardly counts.
    static base::Result<std::unique_ptr<Engine>> make(models::Recompute recompute, std::int64_t limit) {
        models::EnergyFlowConfig config;
        config.width = config.height = 50;
        config.depth = 20;
        config.hidden = 512;
        config.noise = 0;
        config.recompute = recompute;
        RunSettings settings;
        settings.model = "energy_flow";
        settings.batch = settings.eval_batch = 16;
        settings.memory_limit = limit;
        settings.seeds = {42};
        settings.optimizer.lr = {1e-3};
        EngineOptions options;
        options.precision = tape::Precision::bf16;
        MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cuda, {}));
        return Engine::create(std::move(backend), std::make_unique<models::EnergyFlow>(config),
                              std::make_unique<data::PairSource>(pairs(config.embedding)), settings, options);
    }

    static double loss_after_an_epoch(Engine& engine) {
        for (std::int32_t i = 0; i < engine.epoch().count(); ++i) engine.launch_step(static_cast<std::uint64_t>(i));
        engine.backend().synchronize();
        const auto scores = engine.evaluate(data::Part::validation);
        EXPECT_TRUE(scores.ok()) << scores.error().text();
        return scores.ok() ? (*scores)[0].loss : NAN;
    }
};

TEST_P(GpuMemoryPlan, IsWhatIsUsed) {
    const auto engine = make(GetParam(), 0);
    ASSERT_TRUE(engine.ok()) << engine.error().text();
    const auto planned = static_cast<double>((*engine)->memory_needs().total());
    const auto used = static_cast<double>((*engine)->memory_used());
    std::printf("recompute %s: planned %.1f MiB, used %.1f MiB\n", name_of(GetParam()), planned / 0x1p20, used / 0x1p20);
    EXPECT_NEAR(planned, used, std::max(0.015 * used, 32 * 0x1p20));
}

TEST_P(GpuMemoryPlan, SplitBatchesTrainAsWholeOnes) {
    const auto whole = make(GetParam(), 0);
    ASSERT_TRUE(whole.ok()) << whole.error().text();
    const double wanted = loss_after_an_epoch(**whole);
    const auto split = make(GetParam(), (*whole)->memory_needs().total() / 2);
    ASSERT_TRUE(split.ok()) << split.error().text();
    EXPECT_LT((*split)->micro_batch(), 16);
    EXPECT_NEAR(loss_after_an_epoch(**split), wanted, 0.01 * wanted);
}

INSTANTIATE_TEST_SUITE_P(Keeping, GpuMemoryPlan,
                         ::testing::Values(models::Recompute::none, models::Recompute::gates, models::Recompute::step),
                         [](const auto& each) { return std::string(name_of(each.param)); });

}  // namespace
}  // namespace millrace::train
