#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "data/resident_samples.h"
#include "gpu/api_counter.h"
#include "models/registry.h"
#include "models/tiny_images.h"
#include "train/engine.h"
#include "train/recipe_keys.h"

namespace millrace::train {
namespace {

constexpr std::uint32_t kTrain = 437, kTest = 101;  // odd, so that every pass has a tail: four programs besides the step
constexpr long kSteps = 100;

class SteadyStep : public ::testing::Test {
protected:
    void SetUp() override {
        if (auto gpu = ops::cuda_available(); !gpu.ok()) GTEST_SKIP() << gpu.error().text();
    }

    /// The collective's debug preset at batch 32 on the GPU.
    static std::unique_ptr<Engine> engine(bool capture, const std::vector<std::string>& more = {}) {
        auto made = make(capture, more);
        if (!made.ok()) {
            ADD_FAILURE() << made.error().text();
            return nullptr;
        }
        return std::move(made).value();
    }

    /// Bits of everything that a step changes: parameters, moments, running statistics, member states.
    static std::vector<std::uint32_t> bits(Engine& engine) {
        std::vector<std::uint32_t> all;
        tape::Store& store = engine.store();
        const auto append = [&](const tensor::View& view) {
            if (!view.present()) return;
            const std::size_t words =
                static_cast<std::size_t>(view.count()) * tensor::size_of(view.dtype) / sizeof(std::uint32_t);
            all.resize(all.size() + words);
            store.read(view, all.data() + all.size() - words, words * sizeof(std::uint32_t));
        };
        append(store.parameter_arena());
        append(store.first_moment());
        append(store.second_moment());
        for (std::size_t id = 0; id < store.parameters().size(); ++id) {
            const tape::Parameter& parameter = store.parameters()[id];
            if (!parameter.fixed) continue;
            for (int member = 0; member < store.members(); ++member)
                for (int group = 0; group < parameter.matrices; ++group)
                    for (const float value : store.read_parameter(static_cast<tape::ParameterId>(id), group, member))
                        all.push_back(std::bit_cast<std::uint32_t>(value));
        }
        return all;
    }

    static void step(Engine& engine, std::uint64_t count) {
        const auto per_epoch = static_cast<std::uint64_t>(engine.epoch().count());
        for (std::uint64_t i = 0; i < count; ++i) engine.launch_step(i % per_epoch);
        engine.backend().synchronize();
        const auto status = engine.backend().check();
        EXPECT_TRUE(status.ok()) << status.error().text();
    }

private:
    static base::Result<std::unique_ptr<Engine>> make(bool capture, const std::vector<std::string>& more) {
        base::RecipeOverrides overrides;
        overrides.flags = {"model.name=collective", "model.preset=debug", "train.batch=32", "eval.batch=40",
                           fmt::format("train.capture={}", capture)};
        overrides.flags.insert(overrides.flags.end(), more.begin(), more.end());
        MILLRACE_LET(recipe, parse_recipe("", "test", overrides));
        auto source = std::make_unique<data::ResidentSamples>(testing::tiny_set(kTrain, kTest, 28, 10));
        MILLRACE_LET(settings, read_settings(recipe, source->samples(data::Part::train)));
        MILLRACE_LET(precision, choose_precision("auto", ops::DeviceKind::cuda));
        MILLRACE_LET(model, models::make(recipe, source->fields()));
        MILLRACE_LET(backend, ops::make_backend(ops::DeviceKind::cuda, {}));
        EngineOptions options;
        options.precision = precision;
        return Engine::create(std::move(backend), std::move(model), std::move(source), settings, options);
    }
};

TEST_F(SteadyStep, OneGraphLaunchAndNothingElse) {
    auto counter = testing::ApiCounter::create();
    if (!counter.ok()) GTEST_SKIP() << counter.error().text();
    auto captured = engine(true);
    ASSERT_TRUE(captured && captured->captured());
    step(*captured, 50);

    testing::ApiCounter& calls = **counter;
    calls.start();
    for (long i = 0; i < kSteps; ++i)
        captured->launch_step(static_cast<std::uint64_t>(i) % static_cast<std::uint64_t>(captured->epoch().count()));
    calls.stop();
    captured->backend().synchronize();
    SCOPED_TRACE("runtime: " + testing::text_of(calls.runtime()) + "; driver: " + testing::text_of(calls.driver()));
    EXPECT_EQ(testing::calls_with(calls.runtime(), "cudaGraphLaunch"), kSteps);
    EXPECT_EQ(testing::calls_with(calls.runtime(), ""), kSteps) << "a step calls something besides its launch";
    // The runtime's own calls below ours are the toolkit's business, as long as none waits, copies, allocates or launches more.
    for (const char* forbidden : {"Synchronize", "Query", "Wait", "Memcpy", "Memset", "Alloc", "Free", "LaunchKernel", "Host"})
        EXPECT_EQ(testing::calls_with(calls.driver(), forbidden), 0) << forbidden;
    EXPECT_EQ(testing::calls_with(calls.driver(), "cuGraphLaunch"), kSteps);
}

TEST_F(SteadyStep, CounterSeesLaunchesWaitsAndCopies) {
    auto counter = testing::ApiCounter::create();
    if (!counter.ok()) GTEST_SKIP() << counter.error().text();
    auto eager = engine(false);
    ASSERT_TRUE(eager && !eager->captured());
    step(*eager, 2);
    testing::ApiCounter& calls = **counter;
    calls.start();
    eager->launch_step(0);
    calls.stop();
    EXPECT_GT(testing::calls_with(calls.runtime(), "cudaLaunchKernel"), 5) << testing::text_of(calls.runtime());
    EXPECT_EQ(testing::calls_with(calls.runtime(), "Synchronize"), 0) << testing::text_of(calls.runtime());
    EXPECT_EQ(testing::calls_with(calls.runtime(), "Malloc"), 0) << testing::text_of(calls.runtime());
    calls.start();
    eager->backend().synchronize();
    EXPECT_EQ(testing::calls_with(calls.runtime(), "Synchronize"), 1) << testing::text_of(calls.runtime());
    (void)eager->store().read_states();
    calls.stop();
    EXPECT_GE(testing::calls_with(calls.runtime(), "cudaMemcpy"), 1) << testing::text_of(calls.runtime());
}

TEST_F(SteadyStep, InstrumentedStepsLeaveTheSameBits) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"members=3"}, {"train.accumulate=2"}}) {
        std::vector<std::string> measuring = more;
        measuring.emplace_back("telemetry.components=on");
        auto plain = engine(true, more), measured = engine(true, measuring);
        ASSERT_TRUE(plain && measured);
        EXPECT_EQ(plain->step_listing(), measured->step_listing());
        const auto per_epoch = static_cast<std::uint64_t>(plain->epoch().count());
        const std::uint64_t steps = 2 * per_epoch;
        step(*plain, steps);
        for (std::uint64_t i = 0; i < steps; ++i) {
            const std::uint64_t index = i % per_epoch;
            if (i % 3 == 0) {
                const auto times = measured->component_step(index);
                ASSERT_TRUE(times.ok()) << times.error().text();
                EXPECT_GT(times->total, 0);
                double sum = 0;
                for (const double part : times->milliseconds) {
                    EXPECT_GT(part, 0);
                    sum += part;
                }
                EXPECT_NEAR(sum, times->total, 0.02 * times->total + 0.005);
            } else if (i % 3 == 1) {
                const auto times = measured->operator_step(index);
                ASSERT_TRUE(times.ok()) << times.error().text();
                for (const tape::KernelTime& time : *times) EXPECT_GE(time.microseconds, 0) << time.text;
            } else {
                measured->launch_step(index);
            }
        }
        EXPECT_EQ(bits(*plain), bits(*measured));
    }
}

TEST_F(SteadyStep, RingCarriesTheDevicesClock) {
    auto captured = engine(true);
    ASSERT_TRUE(captured);
    step(*captured, 5);
    const ops::MetricsRow* rows = captured->store().ring_rows();
    for (int i = 1; i < 5; ++i) {
        EXPECT_GT(rows[i].clock, 0u);
        EXPECT_GE(rows[i + 1].clock, rows[i].clock);
        EXPECT_LT(rows[i + 1].clock - rows[i].clock, 1000000000u);
    }
}

TEST_F(SteadyStep, EagerAndCapturedAgreeToTheBit) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"members=3"}, {"train.accumulate=2", "optim.clip_norm=1"}}) {
        auto eager = engine(false, more), captured = engine(true, more);
        ASSERT_TRUE(eager && captured);
        ASSERT_FALSE(eager->captured());
        ASSERT_TRUE(captured->captured());
        const auto start = bits(*captured);
        EXPECT_EQ(start, bits(*eager));
        // More than an epoch: other rows every step, the tail's program in between, and a new order.
        const auto steps = static_cast<std::uint64_t>(eager->epoch().count()) + 7;
        step(*eager, steps);
        step(*captured, steps);
        const auto end = bits(*captured);
        EXPECT_NE(start, end);
        EXPECT_EQ(end, bits(*eager)) << fmt::format("{}", fmt::join(more, " "));
    }
}

TEST_F(SteadyStep, ProgramsInterleaveWithoutATrace) {
    auto straight = engine(true), interrupted = engine(true);
    ASSERT_TRUE(straight && interrupted);
    const auto per_epoch = static_cast<std::uint64_t>(straight->epoch().count());
    ASSERT_GT(straight->epoch().last.total(), 0);
    std::vector<Score> first, last;
    for (std::uint64_t i = 0; i < per_epoch + 3; ++i) {
        straight->launch_step(i % per_epoch);
        interrupted->launch_step(i % per_epoch);
        auto scores = interrupted->evaluate(i % 2 == 0 ? data::Part::test : data::Part::validation);
        ASSERT_TRUE(scores.ok()) << scores.error().text();
        last = std::move(scores).value();
        if (i == 0) first = last;
    }
    ASSERT_EQ(first.size(), 1u);
    EXPECT_TRUE(std::isfinite(last[0].loss));
    EXPECT_LT(last[0].loss, first[0].loss);
    straight->backend().synchronize();
    EXPECT_EQ(bits(*straight), bits(*interrupted));
    EXPECT_TRUE(interrupted->backend().check().ok());
}

}  // namespace
}  // namespace millrace::train
