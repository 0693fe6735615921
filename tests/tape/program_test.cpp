#include "tape/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "models/energy_flow/ops/flow.h"
#include "nn/dense.h"
#include "nn/losses.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "optim/update.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Two layers and a squared error, trained by plain gradient descent: 7 rows of 5 features to 3 outputs.
struct TwoLayers {
    TwoLayers(const Place& place, int members, ops::Activation activation, float lr) : rig(place, members) {
        settings.kind = ops::OptimizerKind::sgd;
        settings.momentum = 0;
        settings.lr = {lr};
        optim::request_arenas(settings, rig.options);
        rig.restart();
        const tensor::View x = rig.store->add_data("x", rig.real(), 7, 5),
                           wanted = rig.store->add_data("wanted", rig.real(), 7, 3);
        nn::DenseOptions first, second;
        first.in = 5;
        first.out = second.in = 4;
        first.activation = activation;
        second.out = 3;
        const nn::Dense below(*rig.store, {"below"}, {}, first), above(*rig.store, {"above"}, {}, second);
        build(x, wanted, below, above);
    }
    void build(const tensor::View& x, const tensor::View& wanted, const nn::Dense& below, const nn::Dense& above) {
        rig.allocate();
        auto states = rig.store->read_states();
        optim::apply(settings, states);
        rig.store->write_states(states);
        Builder builder(*rig.store, {});
        optim::append_step_begin(builder);
        nn::mse(builder, above.forward(builder, below.forward(builder, {rig.for_all(x), false})), rig.for_all(wanted));
        builder.backward();
        optim::append_update(builder, settings);
        rig.prepare(std::move(builder));
        std::vector<double> values(35), targets(21);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = base::random_normal(1, 0, 0, 0, i);
        for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = base::random_normal(1, 0, 0, 1, i);
        rig.program->write(x, values);
        rig.program->write(wanted, targets);
    }
    void set_weight(ParameterId id, int member, std::size_t at, float value) {
        auto values = rig.store->read_parameter(id, 0, member);
        values.at(at) = value;
        rig.store->write_parameter(id, 0, member, values);
    }
    std::vector<double> weights() { return rig.program->read(rig.store->parameter_arena()); }

    TapeRig rig;
    optim::OptimizerSettings settings;
};

class Checked : public ::testing::TestWithParam<Place> {};

TEST_P(Checked, SoundStepIsTheStep) {
    TwoLayers plain(GetParam(), 2, ops::Activation::tanh, 0.1f), checked(GetParam(), 2, ops::Activation::tanh, 0.1f);
    const auto before = plain.weights();
    for (int step = 0; step < 3; ++step) {
        plain.rig.program->run();
        EXPECT_FALSE(checked.rig.program->run_checked().has_value());
    }
    EXPECT_EQ(plain.weights(), checked.weights());
    EXPECT_NE(plain.weights(), before);
}

TEST_P(Checked, BadWeightIsNamedByOperatorLayerSlotAndIndex) {
    for (double bad : {std::nan(""), kInfinity, -kInfinity}) {
        TwoLayers net(GetParam(), 2, ops::Activation::tanh, 0.1f);
        net.set_weight(0, 1, 2 * 5 + 3, static_cast<float>(bad));  // below.weight[2][3] of member 1
        const auto found = net.rig.program->run_checked();
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->op, "dense_forward");
        EXPECT_EQ(found->layer, "below");
        EXPECT_EQ(found->slot, "saved") << "what the activation gets is kept for the backward pass";
        EXPECT_EQ(found->member, 1);
        EXPECT_EQ(found->group, 0);
        EXPECT_EQ(found->row, 0);
        EXPECT_EQ(found->col, 2);
        EXPECT_FALSE(std::isfinite(found->value));
        for (const char* part : {"dense_forward", "below", "saved", "member 1", "column 2"})
            EXPECT_NE(found->text().find(part), std::string::npos) << part << " is missing in: " << found->text();
    }
}

TEST_P(Checked, LayersBelowTheBadOneAreNotBlamed) {
    TwoLayers net(GetParam(), 1, ops::Activation::tanh, 0.1f);
    net.set_weight(2, 0, 1 * 4 + 0, NAN);  // above.weight[1][0]
    const auto found = net.rig.program->run_checked();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->layer, "above");
    EXPECT_EQ(found->slot, "y");
    EXPECT_EQ(found->col, 1);
    EXPECT_TRUE(std::isnan(found->value));
}

TEST_P(Checked, ExplosionIsFoundWhereItHappens) {
    TwoLayers net(GetParam(), 1, ops::Activation::none, 1e20f);
    std::optional<NonFinite> found;
    int steps = 0;
    while (!found && steps < 50) {
        found = net.rig.program->run_checked();
        ++steps;
    }
    ASSERT_TRUE(found.has_value());
    EXPECT_GT(steps, 1) << "the first step is sound";
    // The record that is named got finite numbers and wrote one that is not.
    int matches = 0;
    const bool marked_only = found->slot == "state";
    for (const ops::Record& record : net.rig.program->records()) {
        if (record.op->name != found->op || record.layer != found->layer) continue;
        ++matches;
        for (int slot = 0; slot < record.op->slot_count(); ++slot) {
            const tensor::View& view = record.slots[static_cast<std::size_t>(slot)];
            if (!view.present() || view.dtype == tensor::DType::u8) continue;
            if (marked_only && record.op->slot(slot).written()) continue;
            const auto values = net.rig.program->read(view);
            if (record.op->slot(slot).name == found->slot) {
                const auto at = static_cast<std::size_t>(found->row * view.cols + found->col);
                EXPECT_FALSE(std::isfinite(values.at(at)));
            } else if (!record.op->slot(slot).written()) {
                for (double value : values) EXPECT_TRUE(std::isfinite(value)) << record.op->slot(slot).name;
            }
        }
    }
    EXPECT_EQ(matches, 1);
    if (marked_only) {
        EXPECT_EQ(net.rig.store->read_states()[0].nonfinite, 1u);
    }
}

TEST_P(Checked, LabelOutOfRangeIsBlamedOnItsLoss) {
    TapeRig rig(GetParam(), 2);
    const tensor::View labels = rig.store->add_data("labels", tensor::DType::i32, 2 * 4, 1);
    const tensor::View scores = rig.store->add_data("scores", rig.real(), 4, 3);
    rig.allocate();
    BuildOptions options;
    options.training = false;
    Builder builder(*rig.store, options);
    tensor::View by_member = rig.for_all(labels);
    by_member.rows = 4;
    by_member.stride_k = 4;
    nn::cross_entropy(builder, {rig.for_all(scores), false}, by_member);
    rig.prepare(std::move(builder));
    rig.program->write(labels, {0, 1, 2, 0, 0, 1, 3, 0});
    const auto found = rig.program->run_checked();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->op, "cross_entropy");
    EXPECT_EQ(found->slot, "state");
    EXPECT_EQ(found->member, 1);
    EXPECT_NE(found->text().find("label"), std::string::npos) << found->text();
    EXPECT_FALSE(rig.program->run_checked().has_value()) << "the mark of an earlier run is not this one's";
}

TEST_P(Checked, TimesCoverEveryKernel) {
    TwoLayers net(GetParam(), 1, ops::Activation::tanh, 0.0f);
    const auto times = net.rig.program->time_kernels(3);
    ASSERT_TRUE(times.ok());
    EXPECT_EQ(times->size(), net.rig.program->kernel_count());
    std::string all;
    for (const KernelTime& time : *times) {
        EXPECT_GT(time.microseconds, 0) << time.text;
        all += time.text + "\n";
    }
    for (const char* part : {"dense_forward", "below", "above", "mse", "optimizer"})
        EXPECT_NE(all.find(part), std::string::npos) << all;
}

TEST_P(Checked, LaunchRunsWhereNothingCanBeCaptured) {
    TwoLayers run(GetParam(), 1, ops::Activation::tanh, 0.1f), launched(GetParam(), 1, ops::Activation::tanh, 0.1f);
    ASSERT_TRUE(launched.rig.program->capture().ok());
    EXPECT_FALSE(launched.rig.program->captured());
    run.rig.program->run();
    launched.rig.program->launch();
    EXPECT_EQ(run.weights(), launched.weights());
}

INSTANTIATE_TEST_SUITE_P(Places, Checked, ::testing::Values(kRefPlace, kCpuPlace), [](const auto& p) { return p.param.name; });

class Sections : public ::testing::TestWithParam<Place> {};

TEST_P(Sections, RepeatRunsItsRecordsThatOften) {
    TapeRig rig(GetParam());
    const tensor::View one = rig.store->add_data("one", rig.real(), 2, 3), sum = rig.store->add_data("sum", rig.real(), 2, 3);
    rig.allocate();
    Builder builder(*rig.store, {});
    builder.append(copy_record(one, sum));
    builder.close_section();
    builder.append(add_record(one, {sum, true}));
    builder.close_section(4);
    builder.append(add_record(one, {sum, true}));  // left open: still part of the program, once
    rig.prepare(std::move(builder));
    rig.program->write(one, {1, 2, 3, 4, 5, 6});
    rig.program->run();
    EXPECT_EQ(rig.program->read(sum), (std::vector<double>{6, 12, 18, 24, 30, 36}));
    EXPECT_EQ(rig.program->kernel_count(), 6u);
    EXPECT_FALSE(rig.program->run_checked().has_value());
    EXPECT_EQ(rig.program->read(sum), (std::vector<double>{6, 12, 18, 24, 30, 36}));
}

TEST_P(Sections, RepeatFindsWhatCameBeforeInEveryRound) {
    // `before` is read by the first record of the repeated section only; the buffers behind it must not take its memory.
    TapeRig rig(GetParam());
    const tensor::View one = rig.store->add_data("one", rig.real(), 2, 3), sum = rig.store->add_data("sum", rig.real(), 2, 3);
    rig.allocate();
    Builder builder(*rig.store, {});
    const tensor::View before = builder.buffer(1, 2, 3, rig.real(), Role::activation, "before");
    builder.append(copy_record(one, before));
    builder.close_section();
    builder.append(add_record(before, {sum, true}));
    tensor::View last = one;
    for (int i = 0; i < 8; ++i) {
        const tensor::View next = builder.buffer(1, 2, 3, rig.real(), Role::activation, "next");
        ops::Record record = add_record(last, {next, false});
        record.slots[ops::add::b] = one;
        builder.append(record);
        last = next;
    }
    builder.close_section(3);
    rig.prepare(std::move(builder));
    rig.program->write(one, {1, 2, 3, 4, 5, 6});
    rig.program->run();
    EXPECT_EQ(rig.program->read(sum), (std::vector<double>{3, 6, 9, 12, 15, 18}));
}

TEST_P(Sections, RepeatFindsWhatTheRoundBeforeLeft) {
    // `left` is read before it is written: what lives in front of that in the section must not take its memory.
    TapeRig rig(GetParam());
    const tensor::View one = rig.store->add_data("one", rig.real(), 2, 3), found = rig.store->add_data("found", rig.real(), 2, 3),
                       other = rig.store->add_data("other", rig.real(), 2, 3);
    rig.allocate();
    Builder builder(*rig.store, {});
    const tensor::View passing = builder.buffer(1, 2, 3, rig.real(), Role::activation, "passing"),
                       left = builder.buffer(1, 2, 3, rig.real(), Role::activation, "left");
    builder.append({&ops::fill::kDef, ops::FillParams{9}, {passing}, 0, "fill"});
    builder.append(copy_record(passing, other));
    builder.append(copy_record(left, found));
    builder.append(copy_record(one, left));
    builder.close_section(3);
    rig.prepare(std::move(builder));
    rig.program->write(one, {1, 2, 3, 4, 5, 6});
    rig.program->run();
    EXPECT_EQ(rig.program->read(found), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

INSTANTIATE_TEST_SUITE_P(Places, Sections, ::testing::Values(kRefPlace, kCpuPlace), [](const auto& p) { return p.param.name; });

TEST(Listing, ShowsRecordsShapesAndRepeats) {
    TapeRig rig;
    const tensor::View one = rig.store->add_data("one", rig.real(), 2, 3), sum = rig.store->add_data("sum", rig.real(), 2, 3);
    rig.allocate();
    Builder builder(*rig.store, {});
    builder.append(copy_record(one, sum));
    builder.close_section();
    builder.append(add_record(one, {sum, true}));
    builder.close_section(4);
    rig.prepare(std::move(builder));
    const std::string text = rig.program->listing();
    for (const char* part : {"program test: 2 records", "copy", "in[1,1,2,3]f64", "repeat 4", "out+[1,1,2,3]f64"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in:\n" << text;
}

TEST(Program, ReadsAndWritesWindowsOfEveryMember) {
    TapeRig rig(kCpuPlace, 2);
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(2, 4, "x", false);
    builder.append({&ops::fill::kDef, ops::FillParams{7}, {x.view}, 0, "fill"});
    rig.prepare(std::move(builder));
    rig.program->run();
    rig.program->write(x.view.columns(1, 2), {1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_EQ(rig.program->read(x.view), (std::vector<double>{7, 1, 2, 7, 7, 3, 4, 7, 7, 5, 6, 7, 7, 7, 8, 7}));
    EXPECT_EQ(rig.program->read(x.view.columns(1, 2).split_columns(2)), (std::vector<double>{1, 3, 2, 4, 5, 7, 6, 8}));
}

TEST(Program, ProductsUnderAConditionAreCountedApart) {
    TapeRig rig(kCpuPlace, 2);
    const tensor::View x = rig.store->add_data("x", rig.real(), 7, 5),
                       flags = rig.store->add_data("flags", tensor::DType::i32, 1, 1);
    nn::DenseOptions wide, narrow;
    wide.in = narrow.in = 5;
    wide.out = 11;
    narrow.out = 3;
    const nn::Dense first(*rig.store, {"first"}, {}, wide), second(*rig.store, {"second"}, {}, narrow);
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value in{rig.for_all(x), false};
    first.forward(builder, in);
    builder.close_section();
    builder.only_if(rig.for_all(flags));
    second.forward(builder, in);
    builder.only_if({});
    first.forward(builder, in);
    builder.close_section(3);
    rig.prepare(std::move(builder));
    const Flops flops = rig.program->flops();
    constexpr int kRows = 2 * 7;  // of all members
    EXPECT_EQ(flops.always, 4 * 2 * kRows * 5 * 11);
    EXPECT_EQ(flops.conditional, 3 * 2 * kRows * 5 * 3);
    EXPECT_EQ(flops.total(), flops.always + flops.conditional);
}

TEST(Program, ConditionIsMetWhenAnyMemberAsks) {
    for (const Place& place : {kRefPlace, kCpuPlace}) {
        TapeRig rig(place, 2);
        tensor::View flags = rig.store->add_data("flags", tensor::DType::i32, 2, 3);
        rig.allocate();
        flags.k = 2;
        flags.rows = 1;
        flags.stride_k = 3;
        Builder builder(*rig.store, {});
        const Value x = builder.activation(1, 1, "x", false), y = builder.activation(1, 1, "y", false);
        const auto fill = [&](const Value& value, double number) {
            builder.append({&ops::fill::kDef, ops::FillParams{number}, {value.view}, 0, "fill"});
        };
        fill(x, 1);
        fill(y, 1);
        builder.only_if(flags.columns(1, 1));
        fill(x, 2);
        builder.only_if(flags.columns(2, 1));
        fill(y, 2);
        builder.only_if({});
        builder.keep(x.view);
        builder.keep(y.view);
        rig.prepare(std::move(builder));
        rig.program->write(flags, {7, 0, 0, 7, 0, -1});
        rig.program->run();
        EXPECT_EQ(rig.program->read(x.view), (std::vector<double>{1, 1})) << place.name << ": no flag is set";
        EXPECT_EQ(rig.program->read(y.view), (std::vector<double>{2, 2})) << place.name << ": that of member 1 is set";
    }
}

TEST(Program, NothingIsConditionalInAPlainStep) {
    const TwoLayers net(kRefPlace, 1, ops::Activation::tanh, 0.1f);
    const Flops flops = net.rig.program->flops();
    // Forward and weight gradients of both layers, the gradient of the inputs above.
    EXPECT_EQ(flops.always, 2 * 7 * (2 * 5 * 4 + 3 * 4 * 3));
    EXPECT_EQ(flops.conditional, 0);
}

TEST(Program, KeptBuffersOutliveTheirLastRecord) {
    for (const bool keep : {false, true}) {
        TapeRig rig(kCpuPlace);
        rig.allocate();
        Builder builder(*rig.store, {});
        std::vector<Value> values;
        for (int i = 0; i < 9; ++i) {
            values.push_back(builder.activation(3, 5, "x", false));
            builder.append({&ops::fill::kDef, ops::FillParams{static_cast<double>(i)}, {values.back().view}, 0, "fill"});
        }
        if (keep) builder.keep(values.front().view);
        builder.keep(rig.store->parameter_arena());  // stays anyway
        rig.prepare(std::move(builder));
        rig.program->run();
        EXPECT_EQ(rig.program->read(values.front().view) == std::vector<double>(15, 0.0), keep);
    }
}

TEST(Program, ErrorsNameTheProgram) {
    TapeRig rig(kCpuPlace);
    const tensor::View fine = rig.store->add_data("fine", tensor::DType::f64, 2, 3);
    rig.allocate();
    Builder builder(*rig.store, {});
    builder.append({&ops::add::kDef, ops::AddParams{}, {fine, {}, fine}, 0, "head"});
    Arena arena(*rig.backend);
    Program program("crooked", *rig.store, std::move(builder), arena);
    ASSERT_TRUE(arena.allocate().ok());
    const auto prepared = program.prepare();
    ASSERT_FALSE(prepared.ok());
    EXPECT_NE(prepared.error().text().find("crooked"), std::string::npos);
    EXPECT_NE(prepared.error().text().find("head: add.a must be f32 [1, 1, 2, 3], got f64"), std::string::npos)
        << prepared.error().text();
}

}  // namespace
}  // namespace millrace::tape
