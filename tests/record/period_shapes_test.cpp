#include "record/periodicity.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::record {
namespace {

using Sequence = std::vector<std::uint64_t>;

/// A step of a network: layers forward, head, layers backward, optimizer. Kinds of elements are disjoint.
Sequence network_step(std::size_t layers, std::size_t forward, std::size_t backward, std::size_t once) {
    Sequence step;
    for (std::size_t layer = 0; layer < layers; ++layer)
        for (std::size_t kernel = 0; kernel < forward; ++kernel) step.push_back(1000 + kernel);
    for (std::size_t kernel = 0; kernel < once / 2; ++kernel) step.push_back(2000 + kernel);
    for (std::size_t layer = 0; layer < layers; ++layer)
        for (std::size_t kernel = 0; kernel < backward; ++kernel) step.push_back(3000 + kernel);
    for (std::size_t kernel = once / 2; kernel < once; ++kernel) step.push_back(2000 + kernel);
    return step;
}

void append_shape(Sequence& to, const Sequence& what, std::size_t times = 1) {
    for (std::size_t time = 0; time < times; ++time) to.insert(to.end(), what.begin(), what.end());
}

std::size_t period_of(const Sequence& sequence) {
    const auto period = find_period(sequence);
    return period ? period->length : 0;
}

TEST(Periodicity, StepIsFoundNotTheLayersInIt) {
    for (const std::size_t layers : {2, 6, 12, 97, 200}) {
        const Sequence step = network_step(layers, 7, 11, 6);
        Sequence sequence;
        append_shape(sequence, step, 5);
        EXPECT_EQ(period_of(sequence), step.size()) << layers << " layers";
    }
}

TEST(Periodicity, UnrolledLoopWithoutAnythingOncePerStep) {
    Sequence sequence;
    for (int step = 0; step < 6; ++step) {
        for (int time = 0; time < 100; ++time) append_shape(sequence, {1, 2});
        for (int time = 0; time < 103; ++time) append_shape(sequence, {3});
    }
    EXPECT_EQ(period_of(sequence), 303u);
}

TEST(Periodicity, LengthsOfAllSortsAreExact) {
    for (const std::size_t length : {1, 2, 3, 5, 7, 13, 31, 127, 509, 1021}) {
        Sequence step, sequence;
        for (std::size_t at = 0; at < length; ++at) step.push_back(at * 17 + 3);
        append_shape(sequence, step, 4);
        sequence.resize(sequence.size() - length / 3);
        EXPECT_EQ(period_of(sequence), length);
    }
}

TEST(Periodicity, TwoPeriodsAreNoProof) {
    Sequence sequence;
    append_shape(sequence, network_step(1, 50, 50, 4), 2);
    EXPECT_EQ(period_of(sequence), 0u);
    EXPECT_EQ(period_of({}), 0u);
    EXPECT_EQ(period_of({1}), 0u);
    EXPECT_EQ(period_of({1, 1}), 0u);
    EXPECT_EQ(period_of({1, 1, 1}), 1u);
}

TEST(Periodicity, VaryingKernelsAreNoise) {
    std::mt19937 random(7);
    const Sequence step = network_step(8, 6, 9, 10);
    Sequence sequence;
    append_shape(sequence, step, 20);
    std::uint64_t odd = 1'000'000;
    for (auto& element : sequence)
        if (random() % 100 < 5) element = odd++;
    EXPECT_EQ(period_of(sequence), step.size());
}

TEST(Periodicity, ElementsThatComeInSomeStepsOnlyAreTolerated) {
    const Sequence step = network_step(4, 5, 8, 20);
    Sequence sequence;
    for (int number = 0; number < 60; ++number) {
        append_shape(sequence, step);
        if (number % 10 == 3) append_shape(sequence, {77, 78});
    }
    EXPECT_EQ(period_of(sequence), step.size());
    const auto marks = find_starts(sequence, {step.size(), 1}, {});
    ASSERT_GE(marks.size(), 59u);
    for (std::size_t at = 1; at < marks.size(); ++at) {
        EXPECT_GE(marks[at] - marks[at - 1], step.size());
        EXPECT_LE(marks[at] - marks[at - 1], step.size() + 2);
    }
}

TEST(Periodicity, StartUpAndEvaluationAreToldApart) {
    std::mt19937 random(3);
    const Sequence step = network_step(6, 5, 9, 12);
    const Sequence evaluation(step.begin(), step.begin() + 6 * 5 + 4);
    Sequence sequence;
    for (int layer = 0; layer < 12; ++layer) append_shape(sequence, {9001, 9002, 9003, 9002});  // weights
    for (int at = 0; at < 700; ++at) sequence.push_back(8000 + random() % 40);
    const std::size_t trained = sequence.size();
    append_shape(sequence, step, 15);
    const std::size_t evaluated = sequence.size();
    append_shape(sequence, evaluation, 10);
    const std::size_t again = sequence.size();
    append_shape(sequence, step, 7);
    ASSERT_EQ(period_of(sequence), step.size());
    const auto marks = find_starts(sequence, {step.size(), 1}, {});
    const auto within = [&](std::size_t begin, std::size_t end) {
        return std::ranges::count_if(marks, [&](std::size_t at) { return at >= begin && at < end; });
    };
    EXPECT_EQ(within(0, trained), 0);
    EXPECT_EQ(within(trained, evaluated), 15);
    EXPECT_EQ(within(again, sequence.size()), 7);
}

TEST(Periodicity, AlternatingStepsAreOnePeriod) {
    Sequence generator = network_step(3, 4, 6, 5), critic = network_step(2, 3, 5, 5), sequence;
    for (auto& element : critic) element += 50'000;
    for (int time = 0; time < 8; ++time) {
        append_shape(sequence, generator);
        append_shape(sequence, critic);
    }
    EXPECT_EQ(period_of(sequence), generator.size() + critic.size());
}

TEST(Periodicity, RandomSequencesHaveNone) {
    for (const unsigned kinds : {3u, 10u, 100u, 5000u}) {
        std::mt19937 random(kinds);
        Sequence sequence;
        for (int at = 0; at < 5000; ++at) sequence.push_back(random() % kinds);
        EXPECT_EQ(period_of(sequence), 0u) << kinds << " kinds";
    }
}

TEST(Periodicity, StepsOfRandomLengthHaveNone) {
    std::mt19937 random(11);
    Sequence sequence;
    for (int step = 0; step < 40; ++step) {
        for (std::uint64_t time = 0, times = 20 + random() % 200; time < times; ++time) append_shape(sequence, {1, 2, 3});
        append_shape(sequence, {4, 5, 6, 7, 8});
    }
    const auto period = find_period(sequence);
    EXPECT_TRUE(!period || period->length == 3) << period->length;
}

TEST(Periodicity, LongSequencesTakeLittleTime) {
    const Sequence step = network_step(48, 15, 25, 60);
    Sequence sequence;
    append_shape(sequence, step, 64);
    EXPECT_EQ(period_of(sequence), step.size());
}

}  // namespace
}  // namespace millrace::record
