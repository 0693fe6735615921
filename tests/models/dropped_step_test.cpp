// A step with a number that is not finite, or a label that is none, is dropped on the device as if it had not been.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "models/baselines/baseline.h"
#include "models/model_rig.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::models {
namespace {

constexpr std::int32_t kRows = 9, kFeatures = 11, kClasses = 3;

struct Where {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
};

/// A small network with norms, fed by hand; two micro-batches in a step when asked to accumulate.
class DroppedStep : public ::testing::TestWithParam<Where> {
protected:
    void start(int members, std::int32_t accumulation, optim::OptimizerSettings settings = {}, bool twins = false) {
        if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
        rig_.device = GetParam().device;
        rig_.precision = GetParam().precision;
        rig_.members = members;
        rig_.settings = std::move(settings);
        rig_.settings.accumulation = accumulation;
        BaselineConfig config;
        config.widths = {8, 6};
        config.task.input.width = kFeatures;
        config.task.outputs = kClasses;
        model_ = std::make_unique<Baseline>(config);
        // A whole micro-batch and one that is a row shorter, so that each has a buffer to feed.
        source_ = std::make_unique<testing::FedSource>(kFeatures, kClasses, std::vector<std::int32_t>{kRows, kRows - 1});
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < members; ++k) seeds.push_back(static_cast<std::uint64_t>(twins ? 21 : 21 + k));
        auto started = rig_.start(*model_, *source_, seeds);
        ASSERT_TRUE(started.ok()) << started.error().text();
        const train::StepRows rows{kRows, 1, accumulation > 1 ? kRows - 1 : 0};
        step_ = std::make_unique<tape::Program>(
            "step", *rig_.store, train::build_training_step(*rig_.store, *model_, *source_, rig_.settings, rows), *rig_.arena);
        ASSERT_TRUE(rig_.arena->allocate().ok());
        auto prepared = step_->prepare();
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    }
    /// Sound rows, with one value or one label replaced.
    void feed(std::size_t index, std::uint32_t stream, float value, std::int32_t label) {
        const auto rows = static_cast<std::size_t>(index == 0 ? kRows : kRows - 1);
        std::vector<float> x(rows * kFeatures);
        std::vector<std::int32_t> labels(rows);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = base::random_normal(2, stream, 0, 0, i);
        for (std::size_t i = 0; i < rows; ++i)
            labels[i] = static_cast<std::int32_t>(base::random_bits(2, stream, 0, 1, i) % kClasses);
        if (value != 0) x[4 * kFeatures + 3] = value;
        if (label != 0) labels[5] = label;
        source_->feed(*rig_.store, index, x, labels);
    }
    void sound_step(std::uint32_t stream) {
        feed(0, stream, 0, 0);
        feed(1, stream + 1000, 0, 0);
        step_->run();
    }
    /// Everything a dropped step must leave alone: parameters, moments, and with `statistics` the running ones.
    std::vector<std::vector<float>> kept(int member, bool statistics) {
        using Arena = tape::Store::Arena;
        std::vector<std::vector<float>> all;
        const auto& parameters = rig_.store->parameters();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const auto id = static_cast<tape::ParameterId>(i);
            if (parameters[i].fixed && !statistics) continue;
            all.push_back(rig_.store->read_parameter(id, 0, member));
            if (parameters[i].fixed) continue;
            all.push_back(rig_.store->read_parameter(id, 0, member, Arena::first_moment));
            all.push_back(rig_.store->read_parameter(id, 0, member, Arena::second_moment));
        }
        return all;
    }
    bool all_finite(int member) {
        for (const auto& values : kept(member, true))
            for (float value : values)
                if (!std::isfinite(value)) return false;
        return true;
    }
    ops::MemberState state(std::size_t member = 0) { return rig_.store->read_states()[member]; }
    void set_loss_scale(std::size_t member, float scale) {
        std::vector<ops::MemberState> states = rig_.store->read_states();
        states[member].loss_scale = scale;
        rig_.store->write_states(states);
    }

    testing::Rig rig_;
    std::unique_ptr<Baseline> model_;
    std::unique_ptr<testing::FedSource> source_;
    std::unique_ptr<tape::Program> step_;
};

TEST_P(DroppedStep, BadInputOrLabelChangesNothingButTheCount) {
    struct Bad {
        const char* what;
        float value;
        std::int32_t label;
    };
    const float infinity = std::numeric_limits<float>::infinity();
    start(1, 1);
    if (IsSkipped() || HasFatalFailure()) return;
    sound_step(1);
    std::uint32_t dropped = 0;
    for (const Bad& bad : {Bad{"NaN", NAN, 0}, Bad{"infinity", infinity, 0}, Bad{"minus infinity", -infinity, 0},
                           Bad{"label too large", 0, kClasses}, Bad{"negative label", 0, -1},
                           Bad{"huge label", 0, std::numeric_limits<std::int32_t>::max()}}) {
        SCOPED_TRACE(bad.what);
        const auto before = kept(0, false);
        const ops::MemberState earlier = state();
        feed(0, 50, bad.value, bad.label);
        step_->run();
        ++dropped;
        EXPECT_EQ(kept(0, false), before);
        EXPECT_TRUE(all_finite(0)) << "running statistics took in what is not finite";
        EXPECT_EQ(state().nonfinite, 1u);
        EXPECT_EQ(state().skipped, dropped);
        EXPECT_EQ(state().applied, earlier.applied);
        EXPECT_EQ(state().step, earlier.step + 1) << "a step was begun";
        EXPECT_EQ(state().position, earlier.position + kRows) << "its rows are used up";
        const ops::MetricsRow row = rig_.store->ring_rows()[state().step % rig_.store->options().ring_capacity];
        EXPECT_EQ(row.nonfinite, 1u);
        EXPECT_EQ(row.skipped, dropped);

        sound_step(100 + dropped);
        EXPECT_NE(kept(0, false), before) << "training goes on";
        EXPECT_TRUE(all_finite(0));
        EXPECT_EQ(state().nonfinite, 0u);
        EXPECT_EQ(state().applied, earlier.applied + 1);
        EXPECT_TRUE(std::isfinite(state().loss));
    }
}

TEST_P(DroppedStep, OneBadMicroBatchDropsTheStepAndItsGradients) {
    // After the drop the next step must equal the one of a run that never saw it: nothing of the bad gradients is left.
    start(1, 2);
    if (IsSkipped() || HasFatalFailure()) return;
    sound_step(1);
    const auto before = kept(0, false);
    feed(0, 50, 0, 0);
    feed(1, 51, NAN, 0);
    step_->run();
    EXPECT_EQ(kept(0, false), before);
    EXPECT_EQ(state().skipped, 1u);
    EXPECT_EQ(state().rows, 2u * kRows - 1);
    feed(0, 50, NAN, 0);
    feed(1, 51, 0, 0);
    step_->run();
    EXPECT_EQ(kept(0, false), before);
    EXPECT_EQ(state().skipped, 2u);
    sound_step(2);
    EXPECT_NE(kept(0, false), before);
    EXPECT_TRUE(all_finite(0));
    EXPECT_EQ(state().applied, 2u);
}

TEST_P(DroppedStep, OtherMembersTrainOn) {
    optim::OptimizerSettings settings;
    settings.kind = ops::OptimizerKind::adamw;
    settings.weight_decay = {0.1};
    start(3, 1, settings);
    if (IsSkipped() || HasFatalFailure()) return;
    sound_step(1);
    auto weight = rig_.store->read_parameter(0, 0, 1);
    const float sound = weight[7];
    weight[7] = std::numeric_limits<float>::infinity();
    rig_.store->write_parameter(0, 0, 1, weight);
    rig_.store->refresh_copies();
    const auto stuck = kept(1, false);
    const auto first = kept(0, false), third = kept(2, false);
    sound_step(2);
    EXPECT_EQ(kept(1, false), stuck);
    EXPECT_NE(kept(0, false), first);
    EXPECT_NE(kept(2, false), third);
    EXPECT_EQ(state(0).skipped, 0u);
    EXPECT_EQ(state(1).skipped, 1u);
    EXPECT_EQ(state(2).skipped, 0u);
    weight[7] = sound;
    rig_.store->write_parameter(0, 0, 1, weight);
    rig_.store->refresh_copies();
    sound_step(3);
    EXPECT_EQ(state(1).applied, 2u);
    for (int member = 0; member < 3; ++member) EXPECT_TRUE(all_finite(member)) << "member " << member;
}

TEST_P(DroppedStep, PowersOfTwoOfTheLossScaleLeaveNoTrace) {
    if (GetParam().precision == tape::Precision::f16) GTEST_SKIP() << "f16 loses small gradients without a scale";
    optim::OptimizerSettings settings;
    settings.clip_norm = {0.5};
    settings.weight_decay = {0.01};
    start(2, 2, settings, true);
    if (IsSkipped() || HasFatalFailure()) return;
    set_loss_scale(1, 1024);
    for (std::uint32_t i = 0; i < 10; ++i) sound_step(10 + i);
    EXPECT_EQ(kept(0, true), kept(1, true));
    EXPECT_EQ(state(0).grad_norm, state(1).grad_norm);
    EXPECT_EQ(state(1).loss_scale, 1024) << "it may change in f16 alone";
    EXPECT_EQ(state(1).good_steps, 0u);
}

TEST_P(DroppedStep, OverflowHalvesTheLossScaleAndChangesNothingElse) {
    optim::OptimizerSettings settings;
    settings.scale_interval = 3;
    start(1, 1, settings);
    if (IsSkipped() || HasFatalFailure()) return;
    sound_step(1);
    // A scale beyond what f16 holds; the others get an infinite input instead.
    const bool half = GetParam().precision == tape::Precision::f16;
    const float scale = half ? 0x1p30f : 1024;
    set_loss_scale(0, scale);
    const auto before = kept(0, false);
    const std::vector<ops::GroupState> groups = rig_.store->read_groups();
    feed(0, 50, half ? 0 : std::numeric_limits<float>::infinity(), 0);
    step_->run();
    EXPECT_EQ(kept(0, false), before);
    EXPECT_EQ(state().nonfinite, 1u);
    EXPECT_EQ(state().applied, 1u);
    EXPECT_EQ(rig_.store->read_groups()[0].applied, groups[0].applied);
    EXPECT_EQ(state().loss_scale, scale / 2);
    EXPECT_EQ(state().good_steps, 0u) << "counted anew";

    set_loss_scale(0, 64);
    for (std::uint32_t good = 1; good <= 7; ++good) {
        sound_step(100 + good);
        EXPECT_EQ(state().loss_scale, good < 3 ? 64 : good < 6 ? 128 : 256) << good;
        EXPECT_EQ(state().good_steps, good % 3) << good;
        const ops::MetricsRow row = rig_.store->ring_rows()[state().step % rig_.store->options().ring_capacity];
        EXPECT_EQ(row.loss_scale, state().loss_scale);
    }
    EXPECT_NE(kept(0, false), before);
}

INSTANTIATE_TEST_SUITE_P(Places, DroppedStep,
                         ::testing::Values(Where{"ref", ops::DeviceKind::ref, tape::Precision::f64},
                                           Where{"cpu", ops::DeviceKind::cpu, tape::Precision::f32},
                                           Where{"cuda", ops::DeviceKind::cuda, tape::Precision::f32},
                                           Where{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16},
                                           Where{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16}),
                         [](const auto& where) { return where.param.name; });

}  // namespace
}  // namespace millrace::models
