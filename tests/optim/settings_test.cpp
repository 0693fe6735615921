#include "optim/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/optimizer/optimizer.h"
#include "ops/step/step.h"
#include "optim/update.h"

namespace millrace::optim {
namespace {

TEST(OptimizerSettings, DefaultsAreValidForAnyNumberOfMembers) {
    EXPECT_TRUE(validate({}, 1).ok());
    EXPECT_TRUE(validate({}, 16).ok());
}

TEST(OptimizerSettings, WhatCannotTrainIsRefused) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    auto refused = [](auto change, const char* word, int members = 1) {
        OptimizerSettings settings;
        change(settings);
        auto status = validate(settings, members);
        ASSERT_FALSE(status.ok()) << word;
        EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
        EXPECT_EQ(status.error().exit_status, 2);
    };
    refused([&](auto& s) { s.lr = {nan}; }, "optim.lr");
    refused([&](auto& s) { s.lr = {-1e-3}; }, "optim.lr");
    refused([&](auto& s) { s.lr = {}; }, "optim.lr");
    refused([&](auto& s) { s.lr = {1e-3, 1e-3}; }, "3 members", 3);
    refused([&](auto& s) { s.weight_decay = {std::numeric_limits<double>::infinity()}; }, "optim.weight_decay");
    refused([&](auto& s) { s.beta1 = 1; }, "optim.beta1");
    refused([&](auto& s) { s.beta2 = nan; }, "optim.beta2");
    refused([&](auto& s) { s.momentum = -0.1; }, "optim.momentum");
    refused([&](auto& s) { s.epsilon = 0; }, "optim.epsilon");
    refused([&](auto& s) { s.clip_norm = nan; }, "optim.clip_norm");
    refused([&](auto& s) { s.accumulation = 0; }, "accumulation");
    refused([&](auto& s) { s.beta2 = {0.9, 0.99}; }, "3 members", 3);
    refused([&](auto& s) { s.clip_norm = {1, 1, -1}; }, "optim.clip_norm", 3);
    refused([&](auto& s) { s.schedule.warmup_steps = {1, 2}; }, "warm-up", 3);
    refused([&](auto& s) { s.schedule.kind = {ops::ScheduleKind::step, ops::ScheduleKind::step}; }, "kind", 3);
    refused([&](auto& s) { s.schedule.floor = 1.5; }, "floor");
    refused([&](auto& s) { s.schedule.interval = 0; }, "interval");
    refused([&](auto& s) { s.schedule.gamma = 0; }, "gamma");
}

TEST(OptimizerSettings, MomentsAreAskedForByKind) {
    OptimizerSettings settings;
    tape::StoreOptions options;
    request_arenas(settings, options);
    EXPECT_TRUE(options.first_moment && options.second_moment);
    settings.kind = ops::OptimizerKind::sgd;
    request_arenas(settings, options);
    EXPECT_TRUE(options.first_moment && !options.second_moment);
    settings.momentum = 0;
    request_arenas(settings, options);
    EXPECT_FALSE(options.first_moment || options.second_moment);
    settings.momentum = {0, 0.9};
    request_arenas(settings, options);
    EXPECT_TRUE(options.first_moment) << "one member needs it";
    EXPECT_TRUE(options.decay_vectors);
    settings.decay_biases = false;
    request_arenas(settings, options);
    EXPECT_FALSE(options.decay_vectors);
}

TEST(OptimizerSettings, ApplySpreadsListsAndKeepsProgress) {
    OptimizerSettings settings;
    settings.kind = ops::OptimizerKind::sgd;
    settings.momentum = 0.8;
    settings.lr = {0.1, 0.2, 0.3};
    settings.weight_decay = {0.5};
    std::vector<ops::MemberState> states(3);
    states[1].seed = 77;
    states[1].step = 5;
    optim::apply(settings, states);
    EXPECT_FLOAT_EQ(states[2].base_lr, 0.3f);
    EXPECT_FLOAT_EQ(states[2].weight_decay, 0.5f);
    EXPECT_FLOAT_EQ(states[0].beta1, 0.8f) << "sgd keeps its momentum in beta1";
    settings.schedule.warmup_steps = {1, 2, 3};
    settings.schedule.gamma = 0.5;
    optim::apply(settings, states);
    EXPECT_EQ(states[1].warmup_steps, 2u);
    EXPECT_EQ(states[2].gamma, 0.5);
    EXPECT_EQ(states[1].seed, 77u);
    EXPECT_EQ(states[1].step, 5u);
}

TEST(LossScale, BeginsAndGoesOnInF16Alone) {
    using tape::Precision;
    std::vector<ops::MemberState> states(3);
    states[1].loss_scale = 512;
    states[1].good_steps = 7;
    states[2].skipped = 20;
    for (const Precision precision : {Precision::f64, Precision::f32, Precision::bf16}) {
        EXPECT_EQ(scale_interval(precision), 0u);
        std::vector<ops::MemberState> others = states;
        set_loss_scale(precision, others);
        for (const ops::MemberState& state : others) EXPECT_TRUE(state.loss_scale == 1 && state.good_steps == 0);
    }
    EXPECT_EQ(scale_interval(Precision::f16), 2000u);
    std::vector<ops::MemberState> resumed = states;
    set_loss_scale(Precision::f16, resumed, true);
    EXPECT_EQ(resumed[1].loss_scale, 512);
    EXPECT_EQ(resumed[1].good_steps, 7u);
    EXPECT_EQ(resumed[2].loss_scale, 1) << "dropped steps halved it down to 1";
    set_loss_scale(Precision::f16, states);
    EXPECT_EQ(states[0].loss_scale, 65536);
    EXPECT_EQ(states[2].loss_scale, 65536) << "dropped steps without a scale say nothing about it";
}

TEST(LossScale, StaysBetweenOneAndInfinity) {
    ops::MemberState state{.loss_scale = 3};
    state.adapt_loss_scale(true, 2);
    EXPECT_EQ(state.loss_scale, 1.5f);
    state.adapt_loss_scale(true, 2);
    EXPECT_EQ(state.loss_scale, 1);
    state.loss_scale = 0x1p126f;
    for (int step = 0; step < 6; ++step) state.adapt_loss_scale(false, 2);
    EXPECT_EQ(state.loss_scale, 0x1p127f);
}

TEST(Update, RecordsFrameTheStepInOrder) {
    auto backend = ops::make_backend(ops::DeviceKind::ref, {}).value();
    OptimizerSettings settings;
    settings.kind = ops::OptimizerKind::sgd;
    settings.accumulation = 2;
    tape::StoreOptions options;
    options.precision = tape::Precision::f64;
    request_arenas(settings, options);
    tape::Store store(*backend, options);
    store.add_vector({"p"}, 3, tape::Init::value(1));
    ASSERT_TRUE(store.allocate().ok());
    tape::Builder builder(store, {});
    append_step_begin(builder);
    append_update(builder, settings);
    ASSERT_EQ(builder.records().size(), 4u);
    EXPECT_EQ(builder.records()[0].op, &ops::step_begin::kDef);
    EXPECT_EQ(builder.records()[1].op, &ops::grad_norm::kDef);
    const ops::Record& update = builder.records()[2];
    EXPECT_EQ(update.op, &ops::optimizer::kDef);
    EXPECT_TRUE(update.slots[ops::optimizer::m].present());
    EXPECT_FALSE(update.slots[ops::optimizer::v].present());
    EXPECT_EQ(builder.records()[3].op, &ops::metrics_push::kDef);
}

}  // namespace
}  // namespace millrace::optim
