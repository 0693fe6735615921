// A language model in 16 bits on CUDA, whose layers and head are kernels of their own: it learns as in f32, and in f16 an
// infinite gradient drops the step.

#include <gtest/gtest.h>

#include <algorithm>

#include <fmt/format.h>

#include "models/language_rig.h"
#include "optim/update.h"

namespace millrace::models {
namespace {

using testing::LanguageRig;

struct HalfLanguage : ::testing::TestWithParam<tape::Precision> {
    static constexpr std::int32_t kDepth = 2;

    void SetUp() override {
        if (const std::string why = testing::missing(ops::DeviceKind::cuda); !why.empty()) GTEST_SKIP() << why;
    }
    static std::unique_ptr<LanguageRig> begin(tape::Precision precision, float dropout, bool deterministic = false) {
        auto rig = std::make_unique<LanguageRig>();
        rig->device = ops::DeviceKind::cuda;
        rig->precision = precision;
        rig->deterministic = deterministic;
        rig->settings.lr = 3e-3;
        rig->settings.clip_norm = 1.0;
        const auto begun =
            rig->begin(std::make_unique<Transformer>(LanguageConfig{300, 40, 128, 4, 256, dropout}, kDepth), 6, {5});
        EXPECT_TRUE(begun.ok()) << (begun.ok() ? "" : begun.error().text());
        auto states = rig->store->read_states();
        optim::set_loss_scale(precision, states);
        rig->store->write_states(states);
        return rig;
    }
    /// The loss of each of `count` steps over two batches in turn.
    static std::vector<double> losses(LanguageRig& rig, std::uint32_t count, bool replayed = false) {
        std::vector<double> all;
        for (std::uint32_t step = 0; step < count; ++step) {
            rig.feed_random(step % 2);
            if (replayed && step == 1) {
                EXPECT_TRUE(rig.training->capture().ok());
            }
            if (replayed && step > 0)
                rig.training->launch();
            else
                rig.training->run();
            rig.backend->synchronize();
            const ops::MemberState state = rig.store->read_states()[0];
            all.push_back(state.loss / state.rows);
        }
        EXPECT_EQ(rig.store->read_states()[0].skipped, 0u);
        return all;
    }
    static int joined_by(const LanguageRig& rig, const std::string& rewrite) {
        return static_cast<int>(
            std::ranges::count_if(rig.training->records(), [&](const auto& record) { return record.op->name == rewrite; }));
    }
};

TEST_P(HalfLanguage, LearnsAsInF32) {
    const double tolerance = GetParam() == tape::Precision::f16 ? 0.02 : 0.05;
    for (const float dropout : {0.0f, 0.1f}) {
        const auto wanted = begin(tape::Precision::f32, dropout), given = begin(GetParam(), dropout);
        EXPECT_EQ(joined_by(*given, "sequence_forward"), kDepth);
        EXPECT_EQ(joined_by(*given, "sequence_backward"), kDepth);
        const std::vector<double> expected = losses(*wanted, 12), found = losses(*given, 12);
        EXPECT_LT(expected.back(), expected.front() - 0.5);
        for (std::size_t step = 0; step < expected.size(); ++step)
            EXPECT_NEAR(found[step], expected[step], tolerance * expected[step]) << "step " << step << ", dropout " << dropout;
    }
}

TEST_P(HalfLanguage, ReplayEqualsEagerToTheBit) {
    for (const bool deterministic : {false, true}) {
        const auto eager = begin(GetParam(), 0.1f, deterministic), replayed = begin(GetParam(), 0.1f, deterministic);
        EXPECT_EQ(losses(*eager, 5), losses(*replayed, 5, true)) << (deterministic ? "pinned" : "not pinned");
        EXPECT_EQ(testing::trained_tensors(*eager->store, tape::Store::Arena::value),
                  testing::trained_tensors(*replayed->store, tape::Store::Arena::value));
    }
}

TEST_P(HalfLanguage, AnInfiniteGradientDropsTheStep) {
    if (GetParam() != tape::Precision::f16) GTEST_SKIP() << "bf16 has no scale";
    const auto rig = begin(tape::Precision::f16, 0.1f);
    const auto set_scale = [&](float scale) {
        auto states = rig->store->read_states();
        states[0].loss_scale = scale;
        rig->store->write_states(states);
    };
    const auto before = testing::trained_tensors(*rig->store, tape::Store::Arena::value);
    rig->feed_random(0);
    set_scale(0x1p40f);
    rig->training->run();
    rig->backend->synchronize();
    ops::MemberState state = rig->store->read_states()[0];
    EXPECT_EQ(state.skipped, 1u);
    EXPECT_EQ(state.loss_scale, 0x1p39f);
    EXPECT_EQ(testing::trained_tensors(*rig->store, tape::Store::Arena::value), before);
    set_scale(1024);
    rig->training->run();
    rig->backend->synchronize();
    state = rig->store->read_states()[0];
    EXPECT_EQ(state.skipped, 1u);
    EXPECT_NE(testing::trained_tensors(*rig->store, tape::Store::Arena::value), before);
}

INSTANTIATE_TEST_SUITE_P(All, HalfLanguage, ::testing::Values(tape::Precision::bf16, tape::Precision::f16),
                         [](const auto& given) { return given.param == tape::Precision::f16 ? "f16" : "bf16"; });

}  // namespace
}  // namespace millrace::models
