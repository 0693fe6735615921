#include "tape/instrument.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/dense/dense.h"
#include "ops/gather/gather.h"
#include "ops/loss/loss.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/step/step.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

ops::Record record_of(const ops::OpDef* op) { return {op, {}, {}, 0, ""}; }

std::vector<Phase> phases(const std::vector<const ops::OpDef*>& operators) {
    std::vector<ops::Record> records;
    for (const ops::OpDef* op : operators) records.push_back(record_of(op));
    return phases_of(records);
}

TEST(Phases, SharedOperatorsBelongToThePassTheyStandIn) {
    using namespace ops;
    const std::vector<Phase> found =
        phases({&step_begin::kDef, &gather_images::kDef, &fill::kDef, &dense_forward::kDef, &add::kDef, &cross_entropy::kDef,
                &linear_dgrad::kDef, &add::kDef, &linear_wgrad::kDef, &micro_end::kDef, &gather_images::kDef, &copy::kDef,
                &grad_norm::kDef, &optimizer::kDef, &metrics_push::kDef});
    EXPECT_EQ(phases({&gather_rows::kDef, &add::kDef}), (std::vector<Phase>{Phase::data, Phase::forward}));
    constexpr Phase kUpdate = Phase::optimizer;
    EXPECT_EQ(found, (std::vector<Phase>{Phase::data, Phase::data, Phase::forward, Phase::forward, Phase::forward, Phase::loss,
                                         Phase::backward, Phase::backward, Phase::backward, kUpdate, Phase::data, Phase::forward,
                                         kUpdate, kUpdate, kUpdate}));
}

TEST(Phases, OnlyOperatorsThatServeInSeveralHaveNoneOfTheirOwn) {
    std::vector<std::string> without;
    for (const ops::OpDef* op : ops::definitions())
        if (!op->phase) without.emplace_back(op->name);
    EXPECT_EQ(without, (std::vector<std::string>{"add", "copy", "fill"}));
    EXPECT_TRUE(phases({}).empty());
}

tensor::View matrix(std::int32_t k, std::int32_t g, std::int32_t rows, std::int32_t cols) {
    tensor::View view;
    view.buffer = 1;
    view.k = k;
    view.g = g;
    view.rows = rows;
    view.cols = cols;
    return view;
}

TEST(Flops, ProductsCountTwoPerTerm) {
    ops::Record forward = record_of(&ops::dense_forward::kDef);
    forward.slots[ops::dense_forward::x] = matrix(2, 3, 5, 7);
    forward.slots[ops::dense_forward::y] = matrix(2, 3, 5, 11);
    EXPECT_EQ(forward.op->flops(forward), 2 * 2 * 3 * 5 * 7 * 11);
    ops::Record dgrad = record_of(&ops::linear_dgrad::kDef);
    dgrad.slots[ops::linear_dgrad::dz] = matrix(2, 3, 5, 11);
    dgrad.slots[ops::linear_dgrad::w] = matrix(2, 3, 11, 7);
    dgrad.slots[ops::linear_dgrad::dx] = matrix(2, 3, 5, 8);  // the eighth column is no work
    EXPECT_EQ(dgrad.op->flops(dgrad), 2 * 2 * 3 * 5 * 7 * 11);
    ops::Record wgrad = record_of(&ops::linear_wgrad::kDef);
    wgrad.slots[ops::linear_wgrad::dz] = matrix(2, 3, 5, 11);
    wgrad.slots[ops::linear_wgrad::dw] = matrix(2, 3, 11, 7);
    EXPECT_EQ(wgrad.op->flops(wgrad), 2 * 2 * 3 * 5 * 7 * 11);
    EXPECT_EQ(ops::optimizer::kDef.flops, nullptr);
}

class InstrumentedProgram : public ::testing::TestWithParam<Place> {
protected:
    /// One, doubled three times in a repeated section.
    void build(TapeRig& rig) {
        BuildOptions options;
        Builder builder(*rig.store, options);
        const Value value = builder.activation(3, 5, "sum", false);
        view_ = value.view;
        ops::Record fill{&ops::fill::kDef, ops::FillParams{1.0}, {}, 0, "layer"};
        fill.slots[ops::fill::out] = value.view;
        builder.append(std::move(fill));
        builder.close_section();
        ops::Record twice{&ops::add::kDef, ops::AddParams{}, {}, 0, "twice"};
        const Value other = builder.activation(3, 5, "other", false);
        ops::Record copy{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "copy"};
        copy.slots[ops::copy::in] = value.view;
        copy.slots[ops::copy::out] = other.view;
        builder.append(std::move(copy));
        twice.slots[ops::add::a] = other.view;
        twice.slots[ops::add::b] = other.view;
        twice.slots[ops::add::out] = value.view;
        builder.append(std::move(twice));
        builder.close_section(3);
        rig.allocate();
        rig.prepare(std::move(builder));
    }
    tensor::View view_;
};

TEST_P(InstrumentedProgram, LeavesWhatTheProgramLeaves) {
    TapeRig rig(GetParam());
    build(rig);
    rig.program->run();
    const std::vector<double> expected = rig.program->read(view_);
    EXPECT_EQ(expected, std::vector<double>(15, 8.0));
    rig.program->write(view_, std::vector<double>(15, -1.0));
    auto phases = PhaseProgram::create(*rig.program, *rig.backend, true);
    ASSERT_TRUE(phases.ok()) << phases.error().text();
    (*phases)->launch();
    const auto times = (*phases)->times();
    ASSERT_TRUE(times.ok()) << times.error().text();
    EXPECT_EQ(rig.program->read(view_), expected);
    EXPECT_GE(times->total, 0);
    const double sum = std::accumulate(times->milliseconds.begin(), times->milliseconds.end(), 0.0);
    EXPECT_NEAR(sum, times->total, 1e-6 + 1e-3 * times->total);
    EXPECT_EQ(times->of(Phase::backward), 0);
    EXPECT_EQ(times->of(Phase::forward), sum);
}

TEST_P(InstrumentedProgram, OnePassTimesEveryLaunch) {
    TapeRig rig(GetParam());
    build(rig);
    const auto times = time_one_pass(*rig.program, *rig.backend);
    ASSERT_TRUE(times.ok()) << times.error().text();
    ASSERT_EQ(times->size(), rig.program->kernel_count());
    EXPECT_EQ(times->size(), 7u);
    EXPECT_EQ(times->front().text, "fill layer");
    EXPECT_EQ(times->back().text, "add twice");
    for (const KernelTime& time : *times) EXPECT_GE(time.microseconds, 0) << time.text;
    EXPECT_EQ(rig.program->read(view_), std::vector<double>(15, 8.0));
}

TEST_P(InstrumentedProgram, PairOfLaunchesRunsTheProgramAndKnowsTheGap) {
    TapeRig rig(GetParam());
    build(rig);
    auto pair = LaunchPair::create(*rig.program, *rig.backend, true);
    ASSERT_TRUE(pair.ok()) << pair.error().text();
    (*pair)->launch();
    EXPECT_EQ(rig.program->read(view_), std::vector<double>(15, 8.0));
    const auto gap = (*pair)->gap();
    ASSERT_TRUE(gap.ok()) << gap.error().text();
    EXPECT_GE(gap->idle, 0);
    EXPECT_GT(gap->period, gap->idle);  // the first launch lies between
}

INSTANTIATE_TEST_SUITE_P(Places, InstrumentedProgram, ::testing::Values(kRefPlace, kCpuPlace),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace millrace::tape
