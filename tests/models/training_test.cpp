// Whole models trained on a small resident image set: repeatability, members against separate runs, accumulation, learning.

#include <gtest/gtest.h>

#include "data/resident_samples.h"
#include "models/baselines/baseline.h"
#include "models/collective/collective.h"
#include "models/model_rig.h"
#include "models/tiny_images.h"
#include "ops/optimizer/optimizer.h"

namespace millrace::models {
namespace {

using testing::Rig;

struct TrainingWhere {
    const char* name;
    ops::DeviceKind device;
    tape::Precision precision;
};
const TrainingWhere kPlaces[] = {{"ref", ops::DeviceKind::ref, tape::Precision::f64},
                                 {"cpu", ops::DeviceKind::cpu, tape::Precision::f32},
                                 {"cuda", ops::DeviceKind::cuda, tape::Precision::f32},
                                 {"cuda_bf16", ops::DeviceKind::cuda, tape::Precision::bf16},
                                 {"cuda_f16", ops::DeviceKind::cuda, tape::Precision::f16}};

CollectiveConfig small_collective() {
    CollectiveConfig config;
    config.task.input.width = 25;
    config.task.outputs = 3;
    config.experts = 2;
    config.analysts = 5;
    config.expert = {{13, 9}, 6};
    config.analyst = {{11, 7}, 4};
    return config;
}

/// What training leaves behind: all parameters and running statistics of one member, and the losses of its steps.
struct TrainingOutcome {
    std::vector<float> values;
    std::vector<double> losses;
    friend bool operator==(const TrainingOutcome&, const TrainingOutcome&) = default;
};

struct Plan {
    CollectiveConfig config = small_collective();
    std::vector<std::uint64_t> seeds{11};
    optim::OptimizerSettings settings = [] {
        optim::OptimizerSettings made;
        made.lr = 1e-2;
        return made;
    }();
    train::StepRows rows{15, 1, 0};  // divides the 90 training samples
    std::int32_t accumulation = 1;
    int steps = 12;
    bool augment = false;
};

/// Trains and gives one outcome per member.
std::vector<TrainingOutcome> trained(const TrainingWhere& where, const Plan& plan) {
    Rig rig;
    rig.device = where.device;
    rig.precision = where.precision;
    rig.members = static_cast<int>(plan.seeds.size());
    rig.settings = plan.settings;
    rig.settings.accumulation = plan.accumulation;
    data::Augmentation augmentation;
    augmentation.enabled = plan.augment;
    data::ResidentSamples source(testing::tiny_set(100, 20), augmentation);
    Collective model(plan.config);
    auto started = rig.start(model, source, plan.seeds);
    EXPECT_TRUE(started.ok()) << started.error().text();
    if (!started.ok()) return {};
    tape::Program step("step", *rig.store, train::build_training_step(*rig.store, model, source, rig.settings, plan.rows),
                       *rig.arena);
    EXPECT_TRUE(rig.arena->allocate().ok());
    auto prepared = step.prepare();
    EXPECT_TRUE(prepared.ok()) << prepared.error().text();
    if (!prepared.ok()) return {};

    std::vector<TrainingOutcome> outcomes(plan.seeds.size());
    for (int s = 0; s < plan.steps; ++s) {
        step.run();
        const auto states = rig.store->read_states();
        for (std::size_t k = 0; k < states.size(); ++k) outcomes[k].losses.push_back(states[k].loss / states[k].rows);
    }
    const auto& parameters = rig.store->parameters();
    for (std::size_t k = 0; k < outcomes.size(); ++k)
        for (std::size_t id = 0; id < parameters.size(); ++id)
            for (int group = 0; group < parameters[id].matrices; ++group) {
                const auto values = rig.store->read_parameter(static_cast<tape::ParameterId>(id), group, static_cast<int>(k));
                outcomes[k].values.insert(outcomes[k].values.end(), values.begin(), values.end());
            }
    return outcomes;
}

class Training : public ::testing::TestWithParam<TrainingWhere> {
protected:
    void SetUp() override {
        if (const std::string why = testing::missing(GetParam().device); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST_P(Training, SameSeedTwiceGivesTheSameBits) {
    Plan plan;
    plan.augment = true;
    const auto first = trained(GetParam(), plan), second = trained(GetParam(), plan);
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first, second);
    plan.seeds = {12};
    EXPECT_NE(first, trained(GetParam(), plan)) << "another seed must give another run";
}

TEST_P(Training, FourMembersEqualFourRuns) {
    Plan plan;
    plan.seeds = {3, 1, 4, 15};
    plan.settings.lr = {1e-2, 3e-3, 1e-3, 2e-2};
    const auto together = trained(GetParam(), plan);
    ASSERT_EQ(together.size(), 4u);
    for (std::size_t k = 0; k < 4; ++k) {
        Plan alone = plan;
        alone.seeds = {plan.seeds[k]};
        alone.settings.lr = plan.settings.lr.of(k);
        EXPECT_EQ(trained(GetParam(), alone)[0], together[k]) << "member " << k;
    }
    EXPECT_NE(together[0].losses, together[1].losses);
}

TEST_P(Training, MembersWithTheirOwnOptimizersEqualRunsOfThem) {
    using ops::ScheduleKind;
    Plan plan;
    plan.seeds = {3, 1, 4};
    optim::OptimizerSettings& all = plan.settings;
    all.kind = ops::OptimizerKind::adamw;
    all.beta1 = {0.9, 0.5, 0.8};
    all.beta2 = {0.999, 0.95, 0.99};
    all.epsilon = {1e-8, 1e-6, 1e-4};
    all.weight_decay = {0, 0.1, 0.3};
    all.clip_norm = {0.5, 0, 0.1};
    all.schedule = {.kind = {ScheduleKind::cosine, ScheduleKind::step, ScheduleKind::constant},
                    .warmup_steps = {0, 2, 4},
                    .total_steps = {9, 0, 0},
                    .floor = {0.1, 0, 0},
                    .interval = {1, 3, 1},
                    .gamma = {1, 0.5, 1}};
    const auto together = trained(GetParam(), plan);
    ASSERT_EQ(together.size(), 3u);
    for (std::size_t k = 0; k < 3; ++k) {
        Plan alone = plan;
        alone.seeds = {plan.seeds[k]};
        const auto pick = [k](auto& setting) { setting = setting.of(k); };
        optim::OptimizerSettings& own = alone.settings;
        for (auto* setting :
             {&own.beta1, &own.beta2, &own.epsilon, &own.weight_decay, &own.clip_norm, &own.schedule.floor, &own.schedule.gamma})
            pick(*setting);
        for (auto* setting : {&own.schedule.warmup_steps, &own.schedule.total_steps, &own.schedule.interval}) pick(*setting);
        pick(own.schedule.kind);
        EXPECT_EQ(trained(GetParam(), alone)[0], together[k]) << "member " << k;
    }
}

TEST_P(Training, LossFallsWithDropoutDiversityAndVariation) {
    Plan plan;
    plan.steps = 60;
    plan.config.revision = Revision::r2;
    plan.config.diversity_experts = plan.config.diversity_analysts = true;
    plan.config.vary_experts = plan.config.vary_analysts = true;
    const auto outcome = trained(GetParam(), plan);
    ASSERT_EQ(outcome.size(), 1u);
    const auto& losses = outcome[0].losses;
    double early = 0, late = 0;
    for (std::size_t i = 0; i < 5; ++i) {
        early += losses[i] / 5;
        late += losses[losses.size() - 1 - i] / 5;
    }
    EXPECT_LT(late, 0.6 * early);
}

TEST_P(Training, LossesFollowTheReferenceBackend) {
    // The same seed draws the same order, augmentation and dropout everywhere; only rounding differs.
    Plan plan;
    plan.steps = 8;
    plan.augment = true;
    plan.config.revision = Revision::r2;
    plan.config.vary_experts = plan.config.vary_analysts = true;
    const auto wanted = trained(kPlaces[0], plan), found = trained(GetParam(), plan);
    ASSERT_EQ(found.size(), 1u);
    const double within = tape::has_copies(GetParam().precision) ? 0.1 : 1e-3;
    for (std::size_t s = 0; s < wanted[0].losses.size(); ++s)
        EXPECT_NEAR(found[0].losses[s], wanted[0].losses[s], within * wanted[0].losses[s]) << "step " << s;
}

TEST_P(Training, RepeatedSectionEqualsWrittenOutMicroBatches) {
    // 15 + 15 rows as one section run twice, and as a full and an equally long last one: the same step.
    Plan repeated, written;
    repeated.accumulation = written.accumulation = 2;
    repeated.rows = {15, 2, 0};
    written.rows = {15, 1, 15};
    EXPECT_EQ(trained(GetParam(), repeated), trained(GetParam(), written));
}

INSTANTIATE_TEST_SUITE_P(Places, Training, ::testing::ValuesIn(kPlaces), [](const auto& where) { return where.param.name; });

/// Objective of one micro-batch at the current parameters.
double objective(Rig& rig, tape::Program& program) {
    auto states = rig.store->read_states();
    for (auto& state : states) state.step = state.epoch = state.position = 0;  // the same rows and draws every time
    rig.store->write_states(states);
    program.run();
    const ops::MemberState state = rig.store->read_states()[0];
    return state.loss / state.rows + state.penalty;
}

/// Moves biases, gains and shifts off 0 and 1, where mistakes hide; a member whose hidden layer is silent then still says
/// something.
void disturb_vectors(tape::Store& store) {
    for (std::size_t id = 0; id < store.parameters().size(); ++id) {
        const tape::Parameter& parameter = store.parameters()[id];
        if (!parameter.vector || parameter.fixed) continue;
        for (int group = 0; group < parameter.matrices; ++group) {
            auto values = store.read_parameter(static_cast<tape::ParameterId>(id), group, 0);
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] +=
                    0.3f * base::random_normal(9, static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(group), 0, i);
            store.write_parameter(static_cast<tape::ParameterId>(id), group, 0, values);
        }
    }
}

void check_differences(Model& model, std::int32_t samples_to_check) {
    Rig rig;
    rig.settings.kind = ops::OptimizerKind::sgd;  // with a rate of 0 the update leaves everything as it is
    rig.settings.lr = {0};
    rig.settings.momentum = 0;
    data::ResidentSamples source(testing::tiny_set(40, 10));
    auto started = rig.start(model, source, {5});
    ASSERT_TRUE(started.ok()) << started.error().text();
    tape::Program step("step", *rig.store, train::build_training_step(*rig.store, model, source, rig.settings, {36, 1, 0}),
                       *rig.arena);
    ASSERT_TRUE(rig.arena->allocate().ok());
    ASSERT_TRUE(step.prepare().ok());
    disturb_vectors(*rig.store);
    const auto& parameters = rig.store->parameters();
    int compared = 0;
    for (std::size_t id = 0; id < parameters.size(); ++id) {
        if (parameters[id].fixed) continue;
        const tensor::View view = rig.store->parameter(static_cast<tape::ParameterId>(id));
        const tensor::View slope = rig.store->gradient(static_cast<tape::ParameterId>(id));
        objective(rig, step);
        const std::vector<double> gradient = step.read(slope);
        std::vector<double> values = step.read(view);
        double scale = 1e-3;
        for (double g : gradient) scale = std::max(scale, std::abs(g));
        const std::size_t stride = std::max<std::size_t>(1, values.size() / static_cast<std::size_t>(samples_to_check));
        for (std::size_t i = 0; i < values.size(); i += stride) {
            const double kept = values[i], h = 1e-6;
            values[i] = kept + h;
            step.write(view, values);
            const double above = objective(rig, step);
            values[i] = kept - h;
            step.write(view, values);
            const double below = objective(rig, step);
            values[i] = kept;
            step.write(view, values);
            EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-6 * scale + 1e-8)
                << parameters[id].names[0] << "[" << i << "]";
            ++compared;
        }
    }
    EXPECT_GT(compared, 50);
}

TEST(FiniteDifferences, AgreeForACollectiveWithEverythingOn) {
    CollectiveConfig config = small_collective();
    config.revision = Revision::r2;
    config.code = 5;
    config.diversity_experts = config.diversity_analysts = true;
    config.diversity_weight = 0.5;
    config.vary_analysts = true;
    Collective model(config);
    check_differences(model, 5);
}

TEST(FiniteDifferences, AgreeForAResidualBaseline) {
    BaselineConfig config;
    config.widths = {7, 7, 5};
    config.residual = true;
    config.task.input.width = 25;
    config.task.outputs = 3;
    Baseline model(config);
    check_differences(model, 7);
}

}  // namespace
}  // namespace millrace::models
