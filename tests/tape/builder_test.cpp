#include "tape/builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/philox.h"
#include "ops/dense/dense.h"
#include "ops/pointwise/pointwise.h"
#include "tape/tape_rig.h"

namespace millrace::tape {
namespace {

std::vector<const ops::OpDef*> operators(const Builder& builder) {
    std::vector<const ops::OpDef*> found;
    for (const ops::Record& record : builder.records()) found.push_back(record.op);
    return found;
}

TEST(Gradient, FirstWriterOverwritesAndLaterOnesAdd) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(3, 5, "x", true);
    const auto first = builder.gradient_target(x), second = builder.gradient_target(x);
    EXPECT_FALSE(first.accumulate);
    EXPECT_TRUE(second.accumulate);
    EXPECT_EQ(first.view.buffer, second.view.buffer);
    EXPECT_NE(first.view.buffer, x.view.buffer);
    EXPECT_EQ(builder.gradient(x).buffer, first.view.buffer);
    EXPECT_TRUE(builder.records().empty()) << "nothing is left to fill";
}

TEST(Gradient, NeighbouringWindowsDoNotAdd) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(3, 5, "x", true);
    EXPECT_FALSE(builder.gradient_target(x.columns(0, 2)).accumulate);
    EXPECT_FALSE(builder.gradient_target(x.columns(2, 3)).accumulate);
    EXPECT_TRUE(builder.gradient_target(x).accumulate);
    EXPECT_TRUE(builder.records().empty()) << "the two windows cover the rows";
}

TEST(Gradient, PartialOverlapFillsTheGapsWithZeros) {
    TapeRig rig(kRefPlace, 2);
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(3, 10, "x", true);
    builder.gradient_target(x.columns(2, 3));
    EXPECT_TRUE(builder.gradient_target(x).accumulate);
    ASSERT_EQ(builder.records().size(), 2u);
    const tensor::View left = builder.records()[0].slots[ops::fill::out], right = builder.records()[1].slots[ops::fill::out];
    EXPECT_EQ(operators(builder), (std::vector{&ops::fill::kDef, &ops::fill::kDef}));
    EXPECT_EQ(std::pair(left.offset, left.cols), std::pair(std::int64_t{0}, 2));
    EXPECT_EQ(std::pair(right.offset, right.cols), std::pair(std::int64_t{5}, 5));
    EXPECT_EQ(right.k, 2);
    EXPECT_EQ(right.rows, 3);
    EXPECT_EQ(right.stride_row, 10);
}

TEST(Gradient, RowWindowsOfOneBufferDoNotAdd) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(6, 5, "x", true);
    EXPECT_FALSE(builder.gradient_target(x.row_window(0, 2)).accumulate);
    EXPECT_FALSE(builder.gradient(x.row_window(2, 4)).present()) << "these rows were never written";
    EXPECT_FALSE(builder.gradient_target(x.row_window(2, 4)).accumulate);
    EXPECT_TRUE(builder.gradient_target(x.row_window(1, 3)).accumulate);
    EXPECT_TRUE(builder.gradient(x).present());
    EXPECT_TRUE(builder.records().empty()) << "the two windows cover the buffer";
}

TEST(Gradient, PartialOverlapInBothAxesFillsTheGapsWithZeros) {
    TapeRig rig(kRefPlace, 2);
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(6, 10, "x", true);
    const Value part = x.columns(3, 7).row_window(2, 4);
    builder.append(add_record(part.view, builder.gradient_target(part)));
    EXPECT_TRUE(builder.gradient_target(x.columns(0, 6).row_window(1, 3)).accumulate);
    ASSERT_EQ(builder.records().size(), 3u);
    const tensor::View above = builder.records()[1].slots[ops::fill::out], left = builder.records()[2].slots[ops::fill::out];
    EXPECT_EQ(std::tuple(above.offset, above.rows, above.cols, above.k), std::tuple(10, 1, 6, 2)) << "row 1, columns 0 to 5";
    EXPECT_EQ(std::tuple(left.offset, left.rows, left.cols, left.k), std::tuple(20, 2, 3, 2)) << "rows 2 and 3, columns 0 to 2";
    EXPECT_EQ(above.stride_k, 60);
    EXPECT_EQ(left.stride_row, 10);
}

TEST(Gradient, OfNothingIsAbsent) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(3, 5, "x", true), data = builder.activation(3, 5, "data", false);
    EXPECT_FALSE(builder.gradient(x).present());
    EXPECT_FALSE(builder.gradient(data).present());
    builder.gradient_target(x.columns(0, 2));
    EXPECT_FALSE(builder.gradient(x.columns(2, 3)).present());
    EXPECT_TRUE(builder.gradient(x.columns(1, 2)).present());
    EXPECT_EQ(builder.records().size(), 1u) << "column 2 of the window that was asked for is filled with zeros";
}

TEST(Gradient, StartsAfreshInTheNextSection) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const Value x = builder.activation(3, 5, "x", true);
    builder.gradient_target(x);
    builder.close_section();
    EXPECT_FALSE(builder.gradient(x).present());
    EXPECT_FALSE(builder.gradient_target(x).accumulate);
}

TEST(Gradient, EvaluationHasNone) {
    TapeRig rig;
    rig.allocate();
    BuildOptions options;
    options.training = false;
    Builder builder(*rig.store, options);
    EXPECT_FALSE(builder.activation(3, 5, "x", true).needs_gradient);
}

class RandomWriters : public ::testing::TestWithParam<Place> {};

TEST_P(RandomWriters, SumInEveryElement) {
    // Writers of random windows of rows and columns, some over groups of columns; a reader must find the sum of them, and
    // zero where nothing was written.
    constexpr std::int32_t kRows = 5, kCols = 24;
    for (std::uint32_t trial = 0; trial < 40; ++trial) {
        TapeRig rig(GetParam(), 2);
        const tensor::View ones = rig.store->add_data("ones", rig.real(), kRows, kCols);
        const tensor::View sums = rig.store->add_data("sums", rig.real(), 2 * kRows, kCols);
        rig.allocate();
        Builder builder(*rig.store, {});
        const Value x = builder.activation(kRows, kCols, "x", true);
        std::uint64_t draws = 0;
        auto below = [&](int n) {
            return static_cast<std::int32_t>(base::random_bits(3, trial, 0, 0, draws++) % static_cast<unsigned>(n));
        };
        std::vector<double> wanted(kRows * kCols, 0.0);
        auto write = [&](std::int32_t begin, std::int32_t width, std::int32_t groups) {
            const std::int32_t row = below(kRows), rows = 1 + below(kRows - row);
            for (std::int32_t r = row; r < row + rows; ++r)
                for (std::int32_t c = begin; c < begin + width; ++c) wanted[static_cast<std::size_t>(r * kCols + c)] += 1;
            const Value part = x.columns(begin, width).row_window(row, rows).split_columns(groups);
            const Value from = Value{rig.for_all(ones).columns(0, width), false}.row_window(0, rows).split_columns(groups);
            builder.append(add_record(from.view, builder.gradient_target(part)));
        };
        for (int writers = 1 + below(5); writers > 0; --writers) {
            const std::int32_t groups = 1 + below(3), width = groups * (1 + below(kCols / groups)),
                               begin = below(kCols - width + 1);
            write(begin, width, groups);
        }
        tensor::View into = sums;
        into.k = 2;
        into.rows = kRows;
        into.stride_k = kRows * kCols;
        builder.append(copy_record(builder.gradient(x), into));
        rig.prepare(std::move(builder));
        rig.program->write(ones, std::vector<double>(kRows * kCols, 1.0));
        rig.program->run();
        const auto found = rig.program->read(sums);
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i], wanted[i % wanted.size()]) << "trial " << trial << ", element " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Places, RandomWriters, ::testing::Values(kRefPlace, kCpuPlace),
                         [](const auto& p) { return p.param.name; });

TEST(ParameterGradient, AddsOnlyWhereSomebodyWroteBefore) {
    TapeRig rig;
    const ParameterId a = rig.store->add_vector({"a"}, 5, Init::value(1)), b = rig.store->add_vector({"b"}, 5, Init::value(1));
    rig.allocate();
    Builder builder(*rig.store, {});
    EXPECT_FALSE(builder.parameter_gradient(a).accumulate);
    EXPECT_FALSE(builder.parameter_gradient(b).accumulate);
    EXPECT_TRUE(builder.parameter_gradient(a).accumulate);
    builder.close_section();
    EXPECT_FALSE(builder.parameter_gradient(a).accumulate);
}

/// Two layers' backward rules: each a weight gradient, then a record of the chain.
void register_rules(Builder& builder) {
    const auto matrix = [&](const char* name) { return builder.activation(3, 3, name, false).view; };
    const tensor::View x = matrix("x"), w = matrix("w");
    for (const char* layer : {"below", "above"}) {
        const tensor::View dw = matrix("dw"), dx = matrix("dx");
        builder.on_backward([&builder, x, w, dw, dx, layer] {
            builder.append_weight_gradient({&ops::linear_wgrad::kDef, ops::LinearGradParams{}, {x, x, dw}, 0, layer});
            builder.append({&ops::linear_dgrad::kDef, ops::LinearGradParams{}, {x, w, dx}, 0, layer});
        });
    }
}

TEST(Backward, RunsRulesInReverse) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    register_rules(builder);
    builder.backward();
    EXPECT_EQ(operators(builder), (std::vector{&ops::linear_wgrad::kDef, &ops::linear_dgrad::kDef, &ops::linear_wgrad::kDef,
                                               &ops::linear_dgrad::kDef}));
    EXPECT_EQ(builder.records().front().layer, "above");
    builder.backward();
    EXPECT_EQ(builder.records().size(), 4u) << "a rule runs once";
}

TEST(Backward, DeferredWeightGradientsComeLastInTheirOrder) {
    TapeRig rig;
    rig.allocate();
    BuildOptions options;
    options.defer_weight_gradients = true;
    Builder builder(*rig.store, options);
    register_rules(builder);
    builder.backward();
    EXPECT_EQ(operators(builder), (std::vector{&ops::linear_dgrad::kDef, &ops::linear_dgrad::kDef, &ops::linear_wgrad::kDef,
                                               &ops::linear_wgrad::kDef}));
    EXPECT_EQ(builder.records()[2].layer, "above");
    EXPECT_EQ(builder.records()[3].layer, "below");
}

/// A weight gradient waits no longer than what it reads and writes stays as it is.
TEST(Backward, DeferredWeightGradientsStandBeforeWhoeverNeedsTheirMemory) {
    TapeRig rig;
    const ParameterId weight = rig.store->add_matrix({"w"}, 3, 3, Init::value(1));
    rig.allocate();
    BuildOptions options;
    options.defer_weight_gradients = true;
    for (const int slot : {ops::linear_wgrad::dz, ops::linear_wgrad::x, ops::linear_wgrad::dw}) {
        Builder builder(*rig.store, options);
        const Value used = builder.activation(4, 3, "used", true), other = builder.activation(4, 3, "other", true),
                    free = builder.activation(1, 3, "free", false);
        builder.append({&ops::fill::kDef, ops::FillParams{}, {used.view}, 0, "fill"});
        const tensor::View of_slot[] = {slot == ops::linear_wgrad::dz ? used.view : other.view,
                                        slot == ops::linear_wgrad::x ? used.view : other.view, rig.store->gradient(weight)};
        builder.append_weight_gradient(
            {&ops::linear_wgrad::kDef, ops::LinearGradParams{}, {of_slot[0], of_slot[1], of_slot[2]}, 0, "waits"});
        builder.append(copy_record(used.view.row_window(0, 1), free.view));
        EXPECT_EQ(builder.records().size(), 2u) << "nothing that it needs is touched";
        const tensor::View& touched = of_slot[slot];
        builder.append({&ops::fill::kDef, ops::FillParams{}, {touched.row_window(2, 1)}, 0, "behind"});
        ASSERT_EQ(builder.records().size(), 4u);
        EXPECT_EQ(builder.records()[2].layer, "waits");
        EXPECT_EQ(builder.records()[3].layer, "behind");
        builder.backward();
        EXPECT_EQ(builder.records().size(), 4u);
    }
}

TEST(Sections, FollowEachOtherWithoutHoles) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const tensor::View x = builder.activation(1, 1, "x", false).view;
    auto append = [&](int count) {
        for (int i = 0; i < count; ++i) builder.append({&ops::fill::kDef, ops::FillParams{}, {x}, 0, "fill"});
    };
    append(2);
    builder.close_section();
    append(3);
    builder.close_section(5);
    builder.close_section();
    append(1);
    const auto sections = builder.take_sections();
    ASSERT_EQ(sections.size(), 3u);
    EXPECT_EQ(sections[0].count, 2u);
    EXPECT_EQ(sections[1].first, 2u);
    EXPECT_EQ(sections[1].count, 3u);
    EXPECT_EQ(sections[1].repeat, 5);
    EXPECT_EQ(sections[2].count, 0u);
}

TEST(OperatorNumbers, RestartGivesTheSameAgain) {
    TapeRig rig;
    rig.allocate();
    Builder builder(*rig.store, {});
    const auto first = builder.next_op_number(), second = builder.next_op_number();
    EXPECT_NE(first, second);
    builder.restart_op_numbers();
    EXPECT_EQ(builder.next_op_number(), first);
}

TEST(BuilderDeathTest, MisuseIsNamed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    TapeRig rig;
    const tensor::View data = rig.store->add_data("data", tensor::DType::f64, 2, 2);
    rig.allocate();
    BuildOptions evaluation, deferred;
    evaluation.training = false;
    deferred.defer_weight_gradients = true;
    Builder evaluator(*rig.store, evaluation), builder(*rig.store, deferred);
    EXPECT_DEATH(evaluator.backward(), "no backward pass");
    EXPECT_DEATH(builder.gradient_target({data, true}), "not this program's");
    EXPECT_DEATH(builder.gradient_target({data, false}), "is not wanted");
    const Value x = builder.activation(4, 2, "x", true);
    const auto add = [&](const Value& to) { builder.append(add_record(to.view, {to.view, true})); };
    EXPECT_DEATH(add(x), "adds to memory that was never written");
    const tensor::View part = x.row_window(1, 2).view;
    builder.append(add_record(part, {part, false}));
    add(x.row_window(1, 2));
    EXPECT_DEATH(add(x.row_window(0, 2)), "adds to memory that was never written");
    builder.append_weight_gradient(
        {&ops::linear_wgrad::kDef, ops::LinearGradParams{}, {x.view, x.view, x.row_window(0, 2).view}, 0, ""});
    EXPECT_DEATH(builder.close_section(), "backward\\(\\) was not called");
}

TEST(BuilderDeathTest, ARecordThatBreaksItsRuleIsRefusedWhereItIsAppended) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    TapeRig rig;
    rig.allocate();
    BuildOptions deferred;
    deferred.defer_weight_gradients = true;
    Builder builder(*rig.store, deferred);
    const Value x = builder.activation(4, 3, "x", false), y = builder.activation(4, 2, "y", false);
    EXPECT_DEATH(builder.append({&ops::copy::kDef, ops::CopyParams{}, {x.view, y.view}, 0, "head"}),
                 "head: copy.in must be a number \\[1, 1, 4, 2\\], got f64 \\[1, 1, 4, 3\\]");
    EXPECT_DEATH(builder.append_weight_gradient({&ops::linear_wgrad::kDef, ops::LinearGradParams{}, {x.view, y.view}, 0, "head"}),
                 "head: linear_wgrad.dw is missing; its slots: dz f64 \\[1, 1, 4, 3\\], x f64 \\[1, 1, 4, 2\\]");
}

}  // namespace
}  // namespace millrace::tape
