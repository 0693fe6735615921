#include "search/trial.h"

#include <gtest/gtest.h>

#include "search/problems.h"
#include "search/stream.h"

namespace millrace::search {
namespace {

const double kNan = std::nan("");
const double kInfinity = std::numeric_limits<double>::infinity();

Trial ended(int64_t number, Objectives values, std::vector<double> violations = {}) {
    Trial trial;
    trial.number = number;
    trial.configuration = {static_cast<double>(number)};
    trial.violations = std::move(violations);
    finish(trial, std::move(values));
    return trial;
}

Trial early(int64_t number, TrialState state, std::map<int64_t, Objectives> reports) {
    Trial trial;
    trial.number = number;
    trial.configuration = {static_cast<double>(number)};
    trial.state = state;
    trial.reports = std::move(reports);
    return trial;
}

TEST(Pareto, FrontsByHand) {
    const std::vector<Objectives> points = {{1, 4}, {2, 2}, {4, 1}, {2, 5}, {3, 3}, {5, 5}, {2, 2}};
    EXPECT_EQ(front_ranks(points), (std::vector<size_t>{0, 0, 0, 1, 1, 2, 0}));
    EXPECT_EQ(front_ranks(std::vector<Objectives>{{3}, {1}, {2}, {1}}), (std::vector<size_t>{2, 0, 1, 0}));
    EXPECT_TRUE(front_ranks({}).empty());
    EXPECT_FALSE(dominates({1, 2}, {1, 2}));
    EXPECT_TRUE(dominates({1, 2}, {1, 3}));
    EXPECT_FALSE(dominates({1, 3}, {2, 2}));
}

TEST(Pareto, FrontsEqualTheirDefinitionOnRandomPoints) {
    for (const size_t objectives : {1u, 2u, 3u}) {
        Stream stream(1, static_cast<int64_t>(objectives), Purpose::forest);
        std::vector<Objectives> points(150, Objectives(objectives));
        for (Objectives& point : points)
            for (double& value : point) value = std::floor(stream.uniform() * 20);
        const std::vector<size_t> ranks = front_ranks(points);
        for (size_t i = 0; i < points.size(); ++i) {
            size_t expected = 0;  // one more than the deepest front among those that dominate it
            for (size_t k = 0; k < points.size(); ++k)
                if (dominates(points[k], points[i])) expected = std::max(expected, ranks[k] + 1);
            EXPECT_EQ(ranks[i], expected) << objectives << " objectives, point " << i;
        }
    }
}

TEST(Pareto, TheLonelyComeFirstWithinAFront) {
    const std::vector<Objectives> points = {{0, 10}, {1, 8.9}, {1.1, 8.8}, {5, 5}, {10, 0}, {11, 11}};
    const std::vector<size_t> order = pareto_order(points);
    EXPECT_EQ(order[2], 3u);
    EXPECT_EQ(order[5], 5u);
}

TEST(Trial, ValuesThatAreNotFiniteFail) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
        const std::vector<Trial> trials = {ended(0, {bad}), ended(1, {5})};
        EXPECT_EQ(trials[0].state, TrialState::failed);
        EXPECT_EQ(best_first(trials), (std::vector<size_t>{1, 0}));
        ASSERT_EQ(finalists(trials, 5).size(), 1u);
        EXPECT_EQ(finalists(trials, 5)[0].numbers, std::vector<int64_t>{1});
    }
    EXPECT_EQ(ended(0, {1, kNan}).state, TrialState::failed);
    EXPECT_EQ(ended(0, {}).state, TrialState::failed);
    // Also when a storage claims that it is complete.
    Trial wrong = ended(0, {kNan});
    wrong.state = TrialState::complete;
    EXPECT_EQ(best_first(std::vector<Trial>{wrong, ended(1, {5})}).front(), 1u);
    EXPECT_TRUE(finalists(std::vector<Trial>{wrong}, 1).empty());
}

TEST(Trial, OrderIsFeasibleThenCompleteThenFarthest) {
    const std::vector<Trial> trials = {
        ended(0, {-9}, {2.0}),                                   // violates much
        ended(1, {-8}, {0.5, -1.0}),                             // violates a little
        early(2, TrialState::pruned, {{1, {0.1}}}),              //
        early(3, TrialState::paused, {{1, {0.9}}, {3, {0.8}}}),  //
        early(4, TrialState::paused, {{1, {0.8}}, {3, {0.7}}}),  //
        early(5, TrialState::running, {{1, {0.0}}}),             // pending
        ended(6, {kNan}),                                        // failed
        ended(7, {2}),
        ended(8, {1}, {0, -3}),  //
        early(9, TrialState::paused, {}),
        ended(10, {-100}, {kNan, -1.0}),  // unknown, and an unknown constraint
    };
    EXPECT_EQ(best_first(trials), (std::vector<size_t>{8, 7, 4, 3, 2, 6, 1, 0, 10}));
}

TEST(Finalists, AViolatingTrialNeverIsOne) {
    std::vector<Trial> trials;
    for (int64_t i = 0; i < 20; ++i) trials.push_back(ended(i, {static_cast<double>(i)}, {i < 10 ? 1e-9 : 0.0}));
    const std::vector<Finalist> best = finalists(trials, 15);
    ASSERT_EQ(best.size(), 10u);
    for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i].numbers, std::vector<int64_t>{static_cast<int64_t>(10 + i)});
}

TEST(Finalists, ReplicatesCountByTheirMean) {
    std::vector<Trial> trials = {ended(0, {1}), ended(1, {2}), ended(2, {4}), ended(3, {3})};
    trials[2].configuration = trials[0].configuration;
    EXPECT_EQ(replicates(trials, trials[0].configuration), 2);
    EXPECT_EQ(replicates(trials, {77}), 0);
    std::vector<Finalist> best = finalists(trials, 2);
    ASSERT_EQ(best.size(), 2u);
    EXPECT_EQ(best[0].numbers, std::vector<int64_t>{1});
    EXPECT_EQ(best[1].numbers, (std::vector<int64_t>{0, 2}));
    EXPECT_EQ(best[1].mean, Objectives{2.5});
    // A replicate that diverges takes its configuration out.
    trials.push_back(ended(4, {kNan}));
    trials.back().configuration = trials[1].configuration;
    EXPECT_EQ(finalists(trials, 1)[0].numbers, (std::vector<int64_t>{0, 2}));
}

TEST(Finalists, AreTheParetoFrontWithSeveralObjectives) {
    const std::vector<Trial> trials = {ended(0, {3, 3}), ended(1, {1, 4}), ended(2, {4, 1}), ended(3, {2, 2}), ended(4, {5, 5})};
    std::vector<int64_t> numbers;
    for (const Finalist& finalist : finalists(trials, 3)) numbers.push_back(finalist.numbers.front());
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(numbers, (std::vector<int64_t>{1, 2, 3}));
}

TEST(Importance, APlantedParameterIsFirst) {
    const Space space = space_of(
        "a = { uniform = [0, 1] }\nb = { log = [1e-5, 1e-1] }\nc = { choice = [1, 2, 3] }\nd = { int = [1, 9] }\n"
        "e = { log = [1e-6, 1e-1], or = 0 }\n");
    for (size_t planted = 0; planted < space.size(); ++planted) {
        const Objective loss = [&](const Configuration& at) {
            const std::vector<double> unit = space.to_unit(at);
            const double main = unit[planted] - 0.6, other = unit[(planted + 1) % 5];
            return Objectives{-unit[(planted + 2) % 5], main * main + 0.1 * other};
        };
        const std::vector<Trial> trials = run_study(*sampler_of(space, "random", planted), loss, 120);
        const std::vector<double> shares = parameter_importance(space, trials, 1, 3);
        ASSERT_EQ(shares.size(), 5u);
        EXPECT_EQ(std::max_element(shares.begin(), shares.end()) - shares.begin(), static_cast<std::ptrdiff_t>(planted));
        EXPECT_GT(shares[planted], 0.5);
        EXPECT_NEAR(shares[0] + shares[1] + shares[2] + shares[3] + shares[4], 1, 1e-12);
        EXPECT_EQ(shares, parameter_importance(space, trials, 1, 3));
        // The other objective has another cause.
        const std::vector<double> first = parameter_importance(space, trials, 0, 3);
        EXPECT_GT(first[(planted + 2) % 5], 0.8);
    }
}

TEST(Importance, SaysNothingWithoutTrialsAndZeroWithoutDifferences) {
    const Space space = cube(2, 0, 1);
    const Objective flat = [](const Configuration&) { return Objectives{1}; };
    const auto sampler = sampler_of(space, "random", 0);
    EXPECT_TRUE(parameter_importance(space, run_study(*sampler, flat, 7), 0, 0).empty());
    EXPECT_EQ(parameter_importance(space, run_study(*sampler, flat, 20), 0, 0), (std::vector<double>{0, 0}));
    for (int64_t seed = 0; seed < 5; ++seed) {
        Stream noise(5, seed, Purpose::forest);
        const Objective random = [&](const Configuration&) { return Objectives{noise.uniform()}; };
        EXPECT_EQ(parameter_importance(space, run_study(*sampler, random, 200), 0, 0), (std::vector<double>{0, 0})) << seed;
    }
    const Objective fails = [](const Configuration&) { return Objectives{kNan}; };
    EXPECT_TRUE(parameter_importance(space, run_study(*sampler, fails, 50), 0, 0).empty());
}

}  // namespace
}  // namespace millrace::search
