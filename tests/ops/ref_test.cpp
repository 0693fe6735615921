// The reference backend against numbers worked out by hand, and its answers to what it cannot run.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/collective/ops/diversity.h"
#include "op_case.h"
#include "ops/backend.h"
#include "ops/dense/dense.h"
#include "ops/loss/loss.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/step/step.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

TEST(Backend, MissingOperatorIsNamedWithItsBackend) {
    EXPECT_EQ(missing_operator(cosine_diversity::kDef, DeviceKind::cuda).message,
              "operator cosine_diversity has no cuda backend");
}

TEST(RefBackend, RefusesOperandsThatAreNotDouble) {
    auto backend = std::move(make_backend(DeviceKind::ref, {})).value();
    float data = 0;
    Record record;
    record.op = &add::kDef;
    record.params = AddParams{};
    record.layer = "head";
    Bound bound;
    bound.record = &record;
    for (const int slot : {add::a, add::out}) {
        record.slots[static_cast<std::size_t>(slot)].buffer = slot;
        bound.operands[static_cast<std::size_t>(slot)] = {&data, tensor::DType::f32, 1, 1, 1, 1, 1, 1, 1};
    }
    const auto kernels = backend->prepare({&bound, 1}, {});
    ASSERT_FALSE(kernels.ok());
    EXPECT_EQ(kernels.error().text(),
              "head: add.a must be f64 [1, 1, 1, 1], got f32 [1, 1, 1, 1]; its slots: a f32 [1, 1, 1, 1], out f32 [1, 1, 1, 1]");
}

TEST(RefBackend, MemoryIsZeroedAndAligned) {
    auto backend = std::move(make_backend(DeviceKind::ref, {})).value();
    auto memory = std::move(backend->allocate(1000)).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 256, 0u);
    ASSERT_EQ(memory->size(), 1000u);
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
    EXPECT_FALSE(backend->can_capture());
}

TEST(DenseForward, BatchNormNormalisesOverTheRowsAndMovesTheRunningStatistics) {
    namespace at = dense_forward;
    RefProgram p;
    const auto x = p.tensor(1, 1, 2, 1, {1, 3}), w = p.tensor(1, 1, 1, 1, {2}), bias = p.tensor(1, 1, 1, 1, {1});  // z = 3, 7
    const auto gamma = p.tensor(1, 1, 1, 1, {3}), beta = p.tensor(1, 1, 1, 1, {-1});
    const auto mean = p.tensor(1, 1, 1, 1, {10}), var = p.tensor(1, 1, 1, 1, {20});
    const auto saved = p.tensor(1, 1, 2, 1), inv_std = p.tensor(1, 1, 1, 1), y = p.tensor(1, 1, 2, 1);
    DenseParams params{Norm::batch_train, Activation::relu, 0, 0, 0.25f, 0};
    p.add(&dense_forward::kDef, params,
          {{at::x, x},
           {at::w, w},
           {at::bias, bias},
           {at::gamma, gamma},
           {at::beta, beta},
           {at::running_mean, mean},
           {at::running_var, var},
           {at::saved, saved},
           {at::inv_std, inv_std},
           {at::y, y}});
    p.run();
    EXPECT_EQ(p.values(saved), (std::vector<double>{-1, 1}));  // mean 5, biased variance 4
    EXPECT_EQ(p.values(inv_std), (std::vector<double>{0.5}));
    EXPECT_EQ(p.values(y), (std::vector<double>{0, 2}));     // relu(3 * xhat - 1)
    EXPECT_EQ(p.values(mean), (std::vector<double>{8.75}));  // 0.75 * 10 + 0.25 * 5
    EXPECT_EQ(p.values(var), (std::vector<double>{17}));     // 0.75 * 20 + 0.25 * 8, unbiased
}

TEST(Dropout, KeepsTheShareItPromisesAndScalesWhatItKeeps) {
    namespace at = pointwise_forward;
    RefProgram p;
    constexpr int kCount = 20000;
    const auto x = p.tensor(1, 1, 1, kCount, std::vector<double>(kCount, 1.0)), y = p.tensor(1, 1, 1, kCount),
               state = p.states(sample_states(1));
    p.add(&pointwise_forward::kDef, PointwiseParams{Activation::none, 0.25f, 1}, {{at::x, x}, {at::state, state}, {at::y, y}});
    p.run();
    const auto first = p.values(y);
    int kept = 0;
    for (const double value : first) {
        if (value == 0) continue;
        ASSERT_DOUBLE_EQ(value, 1 / 0.75);
        ++kept;
    }
    EXPECT_NEAR(kept, 0.75 * kCount, 4 * std::sqrt(kCount * 0.25 * 0.75));
    ++p.state(state).step;
    p.run();
    EXPECT_NE(p.values(y), first);
}

TEST(CrossEntropy, CountsRowsLossAndTiesInFavourOfTheLowestIndex) {
    namespace at = cross_entropy;
    RefProgram p;
    const auto logits = p.tensor(1, 1, 3, 2, {0, 0, 0, 0, 0, std::log(3.0)}), labels = p.indices(1, 3, {0, 1, 1});
    const auto dlogits = p.tensor(1, 1, 3, 2), predicted = p.indices(1, 3, {7, 7, 7}),
               state = p.states(std::vector<MemberState>(1));
    p.add(&cross_entropy::kDef, LossParams{1},
          {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}, {at::predicted, predicted}});
    p.run();
    EXPECT_EQ(p.state(state).rows, 3u);
    EXPECT_EQ(p.state(state).correct, 2u);  // the tie of row 0 goes to class 0, that of row 1 as well
    EXPECT_EQ(p.state(state).nonfinite, 0u);
    EXPECT_EQ(p.integers(predicted), (std::vector<std::int32_t>{0, 0, 1}));
    EXPECT_NEAR(p.state(state).loss, 2 * std::log(2.0) - std::log(0.75), 1e-14);
    EXPECT_NEAR(p.values(dlogits)[5], (0.75 - 1) / 3, 1e-15);
}

TEST(CrossEntropy, WeightsMultiplyTheRowsAndTheMeanStaysThatOverRows) {
    namespace at = cross_entropy;
    RefProgram p;
    // The rows' losses are log 2, log 4 and log 4/3.
    const auto logits = p.tensor(1, 1, 3, 2, {0, 0, 0, std::log(3.0), 0, std::log(3.0)}), labels = p.indices(1, 3, {0, 0, 1});
    const auto dlogits = p.tensor(1, 1, 3, 2), weights = p.tensor(1, 1, 1, 2, {10, 0.5});
    const auto state = p.states(std::vector<MemberState>(1));
    p.add(&cross_entropy::kDef, LossParams{1},
          {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}, {at::weights, weights}});
    p.run();
    EXPECT_EQ(p.state(state).rows, 3u);
    EXPECT_EQ(p.state(state).correct, 2u) << "an accuracy has no weights";
    EXPECT_NEAR(p.state(state).loss, 10 * std::log(2.0) + 10 * std::log(4.0) + 0.5 * std::log(4.0 / 3), 1e-13);
    const std::vector<double> wanted{10 * -0.5 / 3, 10 * 0.5 / 3, 10 * -0.75 / 3, 10 * 0.75 / 3, 0.5 * 0.25 / 3, 0.5 * -0.25 / 3};
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(p.values(dlogits)[i], wanted[i], 1e-14) << i;
}

TEST(CrossEntropy, LabelOutsideSetsNonfiniteAndLeavesLossAndGradientZero) {
    namespace at = cross_entropy;
    for (const std::int32_t label : {-1, 2}) {
        RefProgram p;
        const auto logits = p.tensor(1, 1, 1, 2, {1, 2}), labels = p.indices(1, 1, {label});
        const auto dlogits = p.tensor(1, 1, 1, 2), state = p.states(std::vector<MemberState>(1));
        p.add(&cross_entropy::kDef, LossParams{1},
              {{at::logits, logits}, {at::labels, labels}, {at::state, state}, {at::dlogits, dlogits}});
        p.run();
        EXPECT_EQ(p.state(state).nonfinite, 1u);
        EXPECT_EQ(p.state(state).loss, 0);
        EXPECT_EQ(p.values(dlogits), (std::vector<double>{0, 0}));
    }
}

TEST(GradNorm, ClipsToTheLimitAndFlagsNonfinite) {
    namespace at = grad_norm;
    std::vector<MemberState> states(3);
    states[0].clip_norm = states[2].clip_norm = 1;
    RefProgram p;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto grads = p.tensor(3, 1, 1, 2, {3, 4, 3, 4, 1, nan}), scratch = p.tensor(3, 1, 1, kNormBlocks),
               state = p.states(states), groups = p.groups(3, std::vector<GroupState>(3)), segments = p.segments({{2, 0}});
    p.add(&grad_norm::kDef, GradNormParams{},
          {{at::grads, grads}, {at::scratch, scratch}, {at::state, state}, {at::groups, groups}, {at::segments, segments}});
    p.run();
    EXPECT_FLOAT_EQ(p.state(state, 0).grad_norm, 5);
    EXPECT_FLOAT_EQ(p.state(state, 0).clip_scale, 0.2f);
    EXPECT_FLOAT_EQ(p.state(state, 1).clip_scale, 1);
    EXPECT_EQ(p.state(state, 1).nonfinite, 0u);
    EXPECT_EQ(p.state(state, 2).nonfinite, 1u);
}

struct OptimizerRun {
    RefProgram program;
    RefProgram::Id p, g, m, v, state, group;
    OptimizerRun(OptimizerKind kind, const MemberState& start) {
        namespace at = optimizer;
        p = program.tensor(1, 1, 1, 1, {2});
        g = program.tensor(1, 1, 1, 1, {0.5});
        m = program.tensor(1, 1, 1, 1, {0});
        v = program.tensor(1, 1, 1, 1, {0});
        state = program.states({start});
        group = program.groups(1, {{.bias1 = 1 - start.beta1, .bias2 = 1 - start.beta2}});
        program.add(&optimizer::kDef, OptimizerParams{kind},
                    {{at::params, p},
                     {at::grads, g},
                     {at::m, m},
                     {at::v, v},
                     {at::state, state},
                     {at::groups, group},
                     {at::segments, program.segments({{1, 0}})}});
    }
};

TEST(Optimizer, SgdTakesTheGradientFirstAndTheMomentumThen) {
    MemberState state;
    state.lr = 0.5f;
    state.beta1 = 0.5f;
    state.weight_decay = 0.25f;
    OptimizerRun run(OptimizerKind::sgd, state);
    run.program.values(run.m)[0] = 99;  // what is left of an earlier run must not matter in the first step
    run.program.run();                  // g' = 0.5 + 0.25 * 2 = 1
    EXPECT_DOUBLE_EQ(run.program.values(run.p)[0], 1.5);
    run.program.run();  // g' = 0.875, buf = 1.375
    EXPECT_DOUBLE_EQ(run.program.values(run.p)[0], 1.5 - 0.5 * 1.375);
    EXPECT_EQ(run.program.state(run.state).applied, 2u);
    EXPECT_EQ(run.program.table(run.group)[0].applied, 2u);
}

TEST(Optimizer, FirstAdamStepHasTheLengthOfTheLearningRate) {
    MemberState state;
    state.lr = 0.125f;
    state.epsilon = 0;
    OptimizerRun run(OptimizerKind::adam, state);
    run.program.run();
    EXPECT_NEAR(run.program.values(run.p)[0], 2 - 0.125, 1e-5);
}

TEST(Optimizer, AdamwDecaysTheParameterApartFromTheGradient) {
    MemberState state;
    state.lr = 0.125f;
    state.weight_decay = 0.5f;
    state.epsilon = 0;
    OptimizerRun run(OptimizerKind::adamw, state);
    run.program.run();
    EXPECT_NEAR(run.program.values(run.p)[0], 2 - 0.125 * 0.5 * 2 - 0.125, 1e-5);
}

TEST(Optimizer, DroppedStepChangesNothingButItsCount) {
    MemberState state;
    state.nonfinite = 1;
    state.lr = 1;
    OptimizerRun run(OptimizerKind::adam, state);
    run.program.run();
    EXPECT_EQ(run.program.values(run.p)[0], 2);
    EXPECT_EQ(run.program.values(run.m)[0], 0);
    EXPECT_EQ(run.program.values(run.g)[0], 0.5);
    EXPECT_EQ(run.program.state(run.state).skipped, 1u);
    EXPECT_EQ(run.program.state(run.state).applied, 0u);
    EXPECT_EQ(run.program.table(run.group)[0].applied, 0u);
}

TEST(StepBegin, CosineAfterWarmupReachesItsFloor) {
    const MemberState state{.floor = 0.25, .base_lr = 2, .schedule = ScheduleKind::cosine, .warmup_steps = 4, .total_steps = 12};
    RefProgram p;
    const auto id = p.states({state}), groups = p.groups(1, {{}});
    p.add(&step_begin::kDef, StepBeginParams{}, {{step_begin::state, id}, {step_begin::groups, groups}});
    std::vector<double> rates;
    for (int i = 0; i < 14; ++i) {
        p.run();
        rates.push_back(p.state(id).lr);
    }
    EXPECT_FLOAT_EQ(static_cast<float>(rates[0]), 0.5f);   // 1 / 4 of the way
    EXPECT_FLOAT_EQ(static_cast<float>(rates[3]), 2.0f);   // warm-up over
    EXPECT_FLOAT_EQ(static_cast<float>(rates[7]), 1.25f);  // half the cosine: floor + (1 - floor) / 2
    EXPECT_FLOAT_EQ(static_cast<float>(rates[11]), 0.5f);
    EXPECT_FLOAT_EQ(static_cast<float>(rates[13]), 0.5f);
}

TEST(StepBegin, StepScheduleFallsAfterEachInterval) {
    const MemberState state{.gamma = 0.5, .base_lr = 8, .schedule = ScheduleKind::step, .interval = 2};
    RefProgram p;
    const auto id = p.states({state}), groups = p.groups(1, {{}});
    p.add(&step_begin::kDef, StepBeginParams{}, {{step_begin::state, id}, {step_begin::groups, groups}});
    for (const float expected : {8.f, 8.f, 4.f, 4.f, 2.f}) {
        p.run();
        EXPECT_FLOAT_EQ(p.state(id).lr, expected);
    }
    EXPECT_EQ(p.state(id).step, 5u);
}

TEST(MicroEnd, PassEndsWhereTheSamplesEnd) {
    RefProgram p;
    const auto id = p.states(std::vector<MemberState>(1));
    p.add(&micro_end::kDef, MicroEndParams{.rows = 4, .samples = 10, .last = 4}, {{micro_end::state, id}});
    for (const std::uint32_t expected : {4u, 8u, 0u, 4u}) {
        p.run();
        EXPECT_EQ(p.state(id).position, expected);
    }
    EXPECT_EQ(p.state(id).epoch, 1u);
    EXPECT_EQ(p.state(id).micro, 4u);
}

TEST(CosineDiversity, ParallelGroupsCostTheWholeWeight) {
    namespace at = cosine_diversity;
    RefProgram p;
    const auto o = p.tensor(1, 2, 1, 2, {1, 2, 2, 4}), state = p.states(std::vector<MemberState>(1)), dout = p.tensor(1, 2, 1, 2);
    p.add(&cosine_diversity::kDef, DiversityParams{0.5, 2, 1}, {{at::o, o}, {at::state, state}, {at::dout, dout}});
    p.run();
    EXPECT_NEAR(p.state(state).penalty, 0.25, 1e-15);
    for (const double value : p.values(dout)) EXPECT_NEAR(value, 0, 1e-15);  // a maximum
}

}  // namespace
}  // namespace millrace::ops::cases
