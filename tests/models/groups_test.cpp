// Groups of parameters in a training step that was captured (where the device can) before the host writes their table.

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "models/baselines/baseline.h"
#include "models/model_rig.h"
#include "models/weights.h"
#include "ops/optimizer/optimizer.h"
#include "train/run_state.h"

namespace millrace::models {
namespace {

using Arena = tape::Store::Arena;
constexpr std::int32_t kRows = 9, kFeatures = 11, kClasses = 3;

struct GroupsWhere {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
};

/// A small network with norms whose vectors are a group of their own, fed by hand.
struct GroupedRun {
    GroupedRun(const GroupsWhere& where, optim::OptimizerSettings settings) {
        rig.device = where.device;
        rig.precision = where.precision;
        rig.members = 2;
        rig.settings = std::move(settings);
        BaselineConfig config;
        config.widths = {8, 6};
        config.task.input.width = kFeatures;
        config.task.outputs = kClasses;
        model = std::make_unique<Baseline>(config);
        source = std::make_unique<testing::FedSource>(kFeatures, kClasses, std::vector<std::int32_t>{kRows});
        const auto started = rig.start(*model, *source, {21, 22});
        EXPECT_TRUE(started.ok()) << started.error().text();
        step = std::make_unique<tape::Program>(
            "step", *rig.store, train::build_training_step(*rig.store, *model, *source, rig.settings, {kRows, 1, 0}), *rig.arena);
        EXPECT_TRUE(rig.arena->allocate().ok());
        const auto prepared = step->prepare();
        EXPECT_TRUE(prepared.ok()) << prepared.error().text();
    }
    void train(int steps) {
        for (int i = 0; i < steps; ++i, ++done) {
            std::vector<float> x(kRows * kFeatures);
            std::vector<std::int32_t> labels(kRows);
            for (std::size_t at = 0; at < x.size(); ++at) x[at] = base::random_normal(2, done, 0, 0, at);
            for (std::size_t at = 0; at < labels.size(); ++at)
                labels[at] = static_cast<std::int32_t>(base::random_bits(2, done, 0, 1, at) % kClasses);
            source->feed(*rig.store, 0, x, labels);
            // The first step loads the kernels; from the second on they are replays where the device captures.
            if (i > 0 && !step->captured() && rig.backend->can_capture()) {
                ASSERT_TRUE(step->capture().ok());
            }
            step->launch();
        }
        rig.backend->synchronize();
        EXPECT_TRUE(rig.backend->check().ok());
    }
    /// The vectors or the matrices of one member: values, or what another arena holds for them.
    std::vector<float> all(bool vectors, int member, Arena arena = Arena::value) {
        std::vector<float> found;
        const auto& parameters = rig.store->parameters();
        for (std::size_t id = 0; id < parameters.size(); ++id) {
            if (parameters[id].fixed || parameters[id].vector != vectors) continue;
            const auto values = rig.store->read_parameter(static_cast<tape::ParameterId>(id), 0, member, arena);
            found.insert(found.end(), values.begin(), values.end());
        }
        return found;
    }
    /// Everything that a frozen group must keep.
    std::vector<std::vector<float>> kept(bool vectors, int member) {
        return {all(vectors, member), all(vectors, member, Arena::first_moment), all(vectors, member, Arena::second_moment)};
    }
    [[nodiscard]] ops::GroupState group(std::size_t member, std::string_view name) {
        const auto table = rig.store->read_groups();
        const auto& groups = rig.store->groups();
        for (std::size_t g = 0; g < groups.size(); ++g)
            if (groups[g].name == name) return table[member * groups.size() + g];
        ADD_FAILURE() << name;
        return {};
    }
    void check_copies() {
        if (!rig.store->copy16().present()) return;
        const auto count = static_cast<std::size_t>(rig.store->copy16().count());
        std::vector<std::uint16_t> copies(count);
        std::vector<float> values(count);
        rig.store->read(rig.store->copy16(), copies.data(), 2 * count);
        rig.store->read(rig.store->parameter_arena(), values.data(), 4 * count);
        const auto rounded = rig.precision == tape::Precision::f16 ? tensor::to_f16 : tensor::to_bf16;
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(copies[i], rounded(values[i])) << i;
    }

    testing::Rig rig;
    std::unique_ptr<Baseline> model;
    std::unique_ptr<testing::FedSource> source;
    std::unique_ptr<tape::Program> step;
    std::uint32_t done = 0;
};

optim::OptimizerSettings grouped(ops::OptimizerKind kind = ops::OptimizerKind::adam) {
    optim::OptimizerSettings settings;
    settings.kind = kind;
    settings.lr = 1e-2;
    settings.weight_decay = 0.1;
    settings.decay_biases = false;
    return settings;
}

class Groups : public ::testing::TestWithParam<GroupsWhere> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_P(Groups, FrozenInOneMemberKeepsItsBitsUntilItIsUnfrozen) {
    for (const bool vectors : {true, false}) {
        const std::string_view name = vectors ? tape::kNoDecay : tape::kWeights,
                               other = vectors ? tape::kWeights : tape::kNoDecay;
        GroupedRun run(GetParam(), grouped()), plain(GetParam(), grouped());
        run.train(3);
        plain.train(3);
        const auto frozen = run.kept(vectors, 1), others = run.kept(!vectors, 1), neighbour = run.kept(vectors, 0);
        run.rig.store->set_trainable(1, name, false);
        run.train(3);
        plain.train(3);
        EXPECT_EQ(run.kept(vectors, 1), frozen);
        EXPECT_NE(run.kept(!vectors, 1), others) << "the other group goes on";
        EXPECT_NE(run.kept(vectors, 0), neighbour) << "the other member goes on";
        for (const bool part : {true, false}) EXPECT_EQ(run.kept(part, 0), plain.kept(part, 0)) << "as if nothing were frozen";
        EXPECT_EQ(run.group(1, name).applied, 3u);
        EXPECT_EQ(run.group(1, other).applied, 6u);
        EXPECT_EQ(run.group(0, name).applied, 6u);
        EXPECT_EQ(run.rig.store->read_states()[1].applied, 6u);
        run.check_copies();
        run.rig.store->set_trainable(1, name, true);
        run.train(1);
        for (std::size_t i = 0; i < frozen.size(); ++i) EXPECT_NE(run.kept(vectors, 1)[i], frozen[i]);
        EXPECT_EQ(run.group(1, name).applied, 4u);
        run.check_copies();
    }
}

TEST_P(Groups, BiasCorrectionCountsTheStepsOfTheGroup) {
    optim::OptimizerSettings settings = grouped();
    settings.weight_decay = 0;
    GroupedRun run(GetParam(), settings);
    for (const int member : {0, 1}) run.rig.store->set_trainable(member, tape::kNoDecay, false);
    run.train(3);
    const auto before = run.all(true, 0);
    run.rig.store->set_trainable(0, tape::kNoDecay, true);
    run.train(1);
    const auto after = run.all(true, 0);
    float longest = 0;
    for (std::size_t i = 0; i < after.size(); ++i) longest = std::max(longest, std::fabs(after[i] - before[i]));
    EXPECT_NEAR(longest, 1e-2, 1e-4) << "the first step of Adam has the length of the rate";
}

TEST_P(Groups, NoDecayLeavesVectorsAsWithoutDecay) {
    for (const ops::OptimizerKind kind : {ops::OptimizerKind::sgd, ops::OptimizerKind::adamw}) {
        optim::OptimizerSettings none = grouped(kind), everywhere = grouped(kind);
        none.weight_decay = 0;
        everywhere.decay_biases = true;
        GroupedRun split(GetParam(), grouped(kind)), without(GetParam(), none), with(GetParam(), everywhere);
        for (GroupedRun* run : {&split, &without, &with}) run->train(1);
        EXPECT_EQ(split.all(true, 1), without.all(true, 1));
        EXPECT_NE(split.all(true, 1), with.all(true, 1));
        EXPECT_EQ(split.all(false, 1), with.all(false, 1));
        EXPECT_NE(split.all(false, 1), without.all(false, 1));
    }
}

TEST_P(Groups, NormCountsTrainableGroupsAlone) {
    GroupedRun run(GetParam(), grouped());
    run.rig.store->set_trainable(1, tape::kWeights, false);
    run.train(1);
    for (const int member : {0, 1}) {
        double squares = 0;
        for (const bool vectors : {true, false})
            for (const float g : run.all(vectors, member, Arena::gradient))
                if (vectors || member == 0) squares += double{g} * g;
        const ops::MemberState state = run.rig.store->read_states()[static_cast<std::size_t>(member)];
        const double norm = std::sqrt(squares) / double{state.loss_scale};
        EXPECT_NEAR(state.grad_norm, norm, 1e-5 * norm) << member;
    }
}

TEST_P(Groups, ResumedTableGoesOnToTheBit) {
    if (GetParam().precision == tape::Precision::f64) GTEST_SKIP() << "checkpoints hold floats";
    GroupedRun whole(GetParam(), grouped());
    whole.train(2);
    whole.rig.store->set_trainable(1, tape::kNoDecay, false);
    auto table = whole.rig.store->read_groups();
    table[0].lr_factor = 0.3f;
    whole.rig.store->write_groups(table);
    whole.train(2);

    GroupedRun resumed(GetParam(), grouped());
    tape::Store &from = *whole.rig.store, &to = *resumed.rig.store;
    train::RunState state;
    state.members = from.read_states();
    train::read_groups(from, state);
    state.epoch_sums = train::StepSums(2);
    const auto read = train::decode_state(train::encode_state(state), "state.json");
    ASSERT_TRUE(read.ok()) << read.error().text();
    auto members = read->members;
    optim::apply(resumed.rig.settings, members);
    for (std::size_t id = 0; id < from.parameters().size(); ++id)
        for (const int member : {0, 1})
            for (const Arena arena : {Arena::value, Arena::first_moment, Arena::second_moment}) {
                const auto parameter = static_cast<tape::ParameterId>(id);
                if (arena != Arena::value && from.parameters()[id].fixed) continue;
                to.write_parameter(parameter, 0, member, from.read_parameter(parameter, 0, member, arena), arena);
            }
    to.refresh_copies();
    to.write_states(members);
    const auto written = train::write_groups(to, *read);
    ASSERT_TRUE(written.ok()) << written.error().text();
    resumed.done = whole.done;
    for (GroupedRun* run : {&whole, &resumed}) {
        run->train(2);
        run->rig.store->set_trainable(1, tape::kNoDecay, true);
        run->train(1);
    }
    for (const int member : {0, 1})
        for (const bool vectors : {true, false}) EXPECT_EQ(resumed.kept(vectors, member), whole.kept(vectors, member));
    EXPECT_EQ(resumed.group(1, tape::kNoDecay).applied, 3u);
}

INSTANTIATE_TEST_SUITE_P(Places, Groups,
                         ::testing::Values(GroupsWhere{"ref", ops::DeviceKind::ref, tape::Precision::f64},
                                           GroupsWhere{"cpu", ops::DeviceKind::cpu, tape::Precision::f32},
                                           GroupsWhere{"cuda", ops::DeviceKind::cuda, tape::Precision::f32},
                                           GroupsWhere{"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16},
                                           GroupsWhere{"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16}),
                         [](const auto& where) { return where.param.name; });

TEST(GroupTable, StatesOfBeforeGroupsGiveTheMembersCount) {
    GroupedRun run({"cpu", ops::DeviceKind::cpu, tape::Precision::f32}, grouped());
    train::RunState state;
    state.members.resize(2);
    state.members[1].applied = 7;
    ASSERT_TRUE(train::write_groups(*run.rig.store, state).ok());
    EXPECT_EQ(run.group(1, tape::kWeights).applied, 7u);
    EXPECT_EQ(run.group(1, tape::kNoDecay).applied, 7u);
    EXPECT_EQ(run.group(1, tape::kRunning).applied, 0u) << "a fixed group has no steps";
    EXPECT_EQ(run.group(0, tape::kWeights).applied, 0u);
    train::read_groups(*run.rig.store, state);
    state.group_names[0] = "another";
    EXPECT_FALSE(train::write_groups(*run.rig.store, state).ok());
}

}  // namespace
}  // namespace millrace::models
