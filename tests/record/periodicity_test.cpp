#include "record/periodicity.h"

#include <gtest/gtest.h>

namespace millrace::record {
namespace {

using Sequence = std::vector<std::uint64_t>;

void append(Sequence& to, const Sequence& what, int times = 1) {
    for (int i = 0; i < times; ++i) to.insert(to.end(), what.begin(), what.end());
}

/// A step with an inner loop over layers, there and back.
Sequence layered_step(int layers) {
    Sequence step{1, 2};
    append(step, {10, 11, 12}, layers);
    step.push_back(20);
    append(step, {30, 31, 32, 33, 34}, layers);
    step.push_back(40);
    return step;
}

TEST(FindPeriod, TakesTheStepAndNotItsLayers) {
    for (const int layers : {1, 2, 7, 61, 130}) {
        Sequence sequence;
        append(sequence, layered_step(layers), 11);
        const auto period = find_period(sequence);
        ASSERT_TRUE(period) << layers;
        EXPECT_EQ(period->length, static_cast<std::size_t>(4 + 8 * layers));
        EXPECT_DOUBLE_EQ(period->match, 1);
    }
}

TEST(FindPeriod, TakesTheWholeOfAccumulatedMicroBatches) {
    Sequence micro = layered_step(5), step, sequence;
    append(step, micro, 4);
    append(step, {90, 91, 92});  // the optimizer, once in four
    append(sequence, step, 9);
    EXPECT_EQ(find_period(sequence)->length, step.size());
}

TEST(FindPeriod, OneGraphPerStepIsAPeriodOfOne) {
    EXPECT_EQ(find_period(Sequence(17, 5))->length, 1u);
    EXPECT_EQ(find_period(Sequence(3, 5))->length, 1u);
}

TEST(FindPeriod, AbstainsWhereNothingReturns) {
    Sequence sequence;
    for (std::uint64_t i = 0; i < 1009; ++i) sequence.push_back(i * i * 2654435761u);
    EXPECT_FALSE(find_period(sequence));
    EXPECT_FALSE(find_period({}));
    EXPECT_FALSE(find_period(Sequence{1, 1}));
}

TEST(FindPeriod, ForgivesAnEvaluationInBetween) {
    Sequence sequence;
    const Sequence step = layered_step(6);
    append(sequence, step, 20);
    append(sequence, {1, 2, 77, 78, 79}, 8);
    append(sequence, step, 23);
    EXPECT_EQ(find_period(sequence)->length, step.size());
}

TEST(FindStarts, FindsEveryStepAroundAnEvaluation) {
    Sequence sequence{500, 501, 502};  // start-up
    const Sequence step = layered_step(6);
    append(sequence, step, 20);
    append(sequence, {1, 2, 77, 78, 79}, 8);
    append(sequence, step, 23);
    const std::vector<double> weight(sequence.size(), 0);
    const auto starts = find_starts(sequence, *find_period(sequence), weight);
    ASSERT_EQ(starts.size(), 43u);
    for (std::size_t i = 1; i < starts.size(); ++i)
        EXPECT_EQ(starts[i] - starts[i - 1], i == 20 ? step.size() + 40 : step.size()) << i;
}

TEST(FindStarts, PrefersThePlaceWithTheGreatestWeight) {
    Sequence sequence;
    append(sequence, {3, 4, 5, 6, 6, 7}, 10);
    std::vector<double> weight(sequence.size(), 0.1);
    for (std::size_t i = 2; i < weight.size(); i += 6) weight[i] = 3;
    const auto starts = find_starts(sequence, {6, 1}, weight);
    ASSERT_EQ(starts.size(), 10u);
    EXPECT_EQ(starts.front(), 2u);
}

TEST(FindStarts, LooksAtGramsWhereNoElementIsAlone) {
    Sequence sequence;
    append(sequence, {1, 2, 1, 1, 2, 2}, 12);
    const std::vector<double> weight(sequence.size(), 1);
    const auto starts = find_starts(sequence, {6, 1}, weight);
    ASSERT_GE(starts.size(), 11u);
    EXPECT_EQ(starts[1] - starts[0], 6u);
}

std::vector<char> graphs_in(const Sequence& sequence) {
    std::vector<char> graphs;
    for (const std::uint64_t element : sequence) graphs.push_back(element == 502 ? 1 : 0);
    return graphs;
}

TEST(RehearsalEnd, IsWhereGraphsTakeOver) {
    const Sequence eager = layered_step(24), graph{501, 501, 502};
    for (const int rehearsed : {0, 3, 5, 12}) {
        Sequence sequence{600, 601, 602};
        append(sequence, eager, rehearsed);
        const std::size_t before = sequence.size();
        append(sequence, graph, 10 + rehearsed * 70);
        const std::size_t end = rehearsal_end(sequence, graphs_in(sequence));
        EXPECT_EQ(end, before) << rehearsed;
        EXPECT_EQ(find_period(std::span(sequence).subspan(end))->length, graph.size());
    }
}

TEST(RehearsalEnd, FewGraphsDoWhereTheyAreManySteps) {
    const Sequence eager = layered_step(24), graph{501, 501, 502};
    for (const int rehearsed : {3, 5, 11}) {
        Sequence sequence{600, 601, 602};
        append(sequence, eager, rehearsed);
        const std::size_t before = sequence.size();
        append(sequence, graph, 49);
        EXPECT_EQ(rehearsal_end(sequence, graphs_in(sequence)), before) << rehearsed;
    }
}

TEST(RehearsalEnd, LayersThatReturnBetterThanTheFewStepsAreNoSteps) {
    // The first step makes the optimizer's state, so that the second comes later than the third after it.
    const Sequence graph{501, 501, 502};
    for (const int layers : {8, 31, 97}) {
        Sequence step, state, sequence{600, 601, 602};
        append(step, {1, 2, 3, 4, 5, 6});
        append(step, {10, 11, 12, 11, 13, 14, 15, 16}, layers);
        append(step, {20, 21, 22, 23, 24});
        append(step, {30, 31, 32, 33, 12, 34, 35, 36, 37, 38, 39}, layers);
        append(step, {40, 41, 42});
        append(state, {50, 50, 51}, 3 * layers);
        append(sequence, step);
        append(sequence, state);
        append(sequence, step, 2);
        const std::size_t before = sequence.size();
        ASSERT_LT(find_period(sequence)->length, step.size()) << "a layer passes for the step";
        append(sequence, graph, static_cast<int>(before));
        EXPECT_EQ(rehearsal_end(sequence, graphs_in(sequence)), before) << layers;
    }
}

TEST(RehearsalEnd, NothingElseIsOne) {
    const Sequence eager = layered_step(24), graph{501, 501, 502};
    Sequence trained;  // enough steps to be steps
    append(trained, eager, 50);
    append(trained, graph, 8000);
    EXPECT_EQ(rehearsal_end(trained, graphs_in(trained)), 0u);
    Sequence evaluated;  // without graphs
    append(evaluated, eager, 5);
    append(evaluated, {1, 2, 77, 78, 79}, 3000);
    EXPECT_EQ(rehearsal_end(evaluated, graphs_in(evaluated)), 0u);
    for (const auto& [steps, graphs] : {std::pair{5, 15}, std::pair{15, 25}}) {  // graphs are the smaller part
        Sequence few;
        append(few, eager, steps);
        append(few, graph, graphs);
        EXPECT_EQ(rehearsal_end(few, graphs_in(few)), 0u);
    }
    Sequence once;  // steps go on without it
    append(once, eager, 5);
    append(once, {502});
    append(once, eager, 30);
    EXPECT_EQ(rehearsal_end(once, graphs_in(once)), 0u);
    Sequence inner;  // graphs are a part of the step
    append(inner, eager);
    append(inner, {502}, 50);
    const Sequence step = inner;
    append(inner, step, 5);
    EXPECT_EQ(rehearsal_end(inner, graphs_in(inner)), 0u);
    Sequence all;
    append(all, graph, 50);
    EXPECT_EQ(rehearsal_end(all, graphs_in(all)), 0u);
    Sequence mixed;  // a step of kernels and two graphs
    append(mixed, {1, 2, 3, 502, 4, 5, 502, 6}, 40);
    EXPECT_EQ(rehearsal_end(mixed, graphs_in(mixed)), 0u);
    EXPECT_EQ(rehearsal_end({}, {}), 0u);
    EXPECT_EQ(rehearsal_end(all, {}), 0u);
}

}  // namespace
}  // namespace millrace::record
