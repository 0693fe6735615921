#include "search/scheduler.h"

#include <gtest/gtest.h>

#include <set>

#include "search/problems.h"

namespace millrace::search {
namespace {

std::unique_ptr<Scheduler> scheduler_of(SchedulerOptions options, const Space& space = cube(1, 0, 1)) {
    auto made = make_scheduler(space, options);
    EXPECT_TRUE(made.ok()) << made.error().text();
    return made.ok() ? std::move(made).value() : nullptr;
}

SchedulerOptions named(const std::string& name, Rungs rungs = {}) {
    SchedulerOptions options;
    options.name = name;
    options.rungs = rungs;
    return options;
}

/// Trials that all are at one step with these values.
std::vector<Trial> side_by_side(const std::vector<Objectives>& values, int64_t step) {
    std::vector<Trial> out(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        out[i].number = static_cast<int64_t>(i);
        out[i].configuration = {0.5};
        out[i].reports[step] = values[i];
    }
    return out;
}

/// A study on `lanes` lanes: all free ones get work, then all report in turn. `curve` gives a trial's values after a number of
/// epochs.
struct Study {
    std::vector<Trial> trials;
    int64_t epochs = 0;
    int64_t promotions = 0;
};

using Curve = std::function<Objectives(const Trial&, int64_t)>;

Study run_scheduled(const Scheduler& scheduler, const Curve& curve, int64_t budget, size_t lanes) {
    Study study;
    std::vector<std::optional<std::pair<size_t, int64_t>>> busy(lanes);  // trial and the step of its report
    for (bool is_active = true; is_active;) {
        is_active = false;
        for (auto& lane : busy) {
            if (lane) continue;
            const auto next = scheduler.next(study.trials, static_cast<int64_t>(study.trials.size()) < budget);
            if (!next) continue;
            if (next->promoted) {
                lane = {static_cast<size_t>(*next->promoted), next->until};
                EXPECT_EQ(study.trials[lane->first].state, TrialState::paused);
                study.trials[lane->first].state = TrialState::running;
                ++study.promotions;
            } else {
                lane = {study.trials.size(), next->until};
                study.trials.emplace_back();
                study.trials.back().number = static_cast<int64_t>(lane->first);
                study.trials.back().configuration = random_configuration(cube(1, 0, 1), 1, static_cast<int64_t>(lane->first));
            }
        }
        for (auto& lane : busy) {
            if (!lane) continue;
            is_active = true;
            Trial& trial = study.trials[lane->first];
            study.epochs += lane->second - trial.last_step();
            trial.reports[lane->second] = curve(trial, lane->second);
            const Decision decision = scheduler.decide(study.trials, lane->first);
            switch (decision.action) {
                case Action::proceed: lane->second = scheduler.next_step(study.trials, lane->first); continue;
                case Action::pause: trial.state = TrialState::paused; break;
                case Action::prune: trial.state = TrialState::pruned; break;
                case Action::fail: trial.state = TrialState::failed; break;
                case Action::complete: finish(trial, trial.reports.rbegin()->second); break;
                case Action::copy:
                    trial.configuration = decision.configuration;
                    lane->second = scheduler.next_step(study.trials, lane->first);
                    continue;
            }
            lane.reset();
        }
    }
    return study;
}

/// Falls from 1 towards a level that the configuration sets; the faster ones are not the better ones.
Objectives learning_curve(const Trial& trial, int64_t epochs) {
    const double level = trial.configuration[0];
    const double speed = 0.4 + 0.2 * std::sin(50 * level);
    const double noise = 0.01 * std::sin(1000 * level + static_cast<double>(epochs));
    return {level + (1 - level) * std::exp(-speed * static_cast<double>(epochs)) + noise / static_cast<double>(epochs)};
}

int64_t count_of(const std::vector<Trial>& trials, TrialState state) {
    return std::count_if(trials.begin(), trials.end(), [&](const Trial& trial) { return trial.state == state; });
}

TEST(Scheduler, HostileOptionsAreRefused) {
    const Space space = cube(1, 0, 1);
    for (const Rungs rungs : {Rungs{0, 3, 27}, Rungs{1, 1, 27}, Rungs{10, 3, 9}})
        EXPECT_FALSE(make_scheduler(space, named("asha", rungs)).ok());
    EXPECT_NE(make_scheduler(space, named("ashaa")).error().message.find("did you mean asha?"), std::string::npos);
    EXPECT_FALSE(make_scheduler(space, named("hyperband", {1, 2, int64_t{1} << 62})).ok());
    SchedulerOptions options = named("pbt");
    options.population = 3;
    EXPECT_FALSE(make_scheduler(space, options).ok());
    options = named("median");
    options.interval = 0;
    EXPECT_FALSE(make_scheduler(space, options).ok());
    options = named("median");
    options.least_known = 0;
    EXPECT_FALSE(make_scheduler(space, options).ok());
}

TEST(Scheduler, EveryOneFailsNanAndCompletesAtTheLastStep) {
    for (const std::string name : {"none", "asha", "hyperband", "median", "pbt"}) {
        const auto scheduler = scheduler_of(named(name));
        EXPECT_EQ(scheduler->decide(side_by_side({{std::nan("")}}, 1), 0).action, Action::fail) << name;
        EXPECT_EQ(scheduler->decide(side_by_side({{1, std::nan("")}}, 1), 0).action, Action::fail) << name;
        EXPECT_EQ(scheduler->decide(side_by_side({{5}, {1}, {1}, {1}, {1}, {1}, {1}, {1}}, 27), 0).action, Action::complete)
            << name;
        EXPECT_FALSE(scheduler->next({}, false).has_value()) << name;
        EXPECT_TRUE(scheduler->next({}, true).has_value()) << name;
    }
}

TEST(None, RunsEveryTrialInFull) {
    const Study study = run_scheduled(*scheduler_of(named("none")), learning_curve, 20, 3);
    EXPECT_EQ(study.epochs, 20 * 27);
    EXPECT_EQ(count_of(study.trials, TrialState::complete), 20);
}

TEST(Asha, PromotesExactlyTheBestThirdAsTheyCome) {
    const auto asha = scheduler_of(named("asha", {1, 3, 9}));
    std::vector<Trial> trials;
    const auto report = [&](double value, Action expected) {
        trials.push_back({static_cast<int64_t>(trials.size()), {0.5}, TrialState::running, {}, {}, {{1, {value}}}});
        const Action action = asha->decide(trials, trials.size() - 1).action;
        EXPECT_EQ(action, expected) << "trial " << trials.size() - 1;
        trials.back().state = action == Action::pause ? TrialState::paused : TrialState::running;
    };
    const auto expect_next = [&](std::optional<int64_t> promoted, int64_t until) {
        const auto next = asha->next(trials, true);
        ASSERT_TRUE(next.has_value());
        EXPECT_EQ(next->promoted, promoted);
        EXPECT_EQ(next->until, until);
    };
    report(0.5, Action::pause);  // alone: a third of one is none
    expect_next(std::nullopt, 1);
    report(0.7, Action::pause);
    expect_next(std::nullopt, 1);
    report(0.9, Action::pause);  // three are there: the best one, 0, goes on
    expect_next(0, 3);
    trials[0].state = TrialState::running;
    expect_next(std::nullopt, 1);  // not twice
    report(0.8, Action::pause);
    report(0.1, Action::proceed);  // takes the one place of five from 0, which is already on its way
    report(0.6, Action::pause);    // two places of six: 4 and 0
    expect_next(std::nullopt, 1);
    report(0.05, Action::proceed);
    for (const double value : {0.95, 0.96, 0.97, 0.98}) report(value, Action::pause);
    expect_next(std::nullopt, 1);  // three places of eleven: 6, 4 and 0
    report(0.99, Action::pause);
    expect_next(5, 3);  // four of twelve
}

TEST(Asha, PausedTrialsArePromotedLater) {
    const auto asha = scheduler_of(named("asha", {1, 3, 9}));
    std::vector<Trial> trials = side_by_side({{0.5}, {0.6}, {0.7}, {0.8}, {0.9}}, 1);
    for (Trial& trial : trials) trial.state = TrialState::paused;
    EXPECT_EQ(asha->next(trials, true)->promoted, 0);
    trials[0].state = TrialState::running;
    EXPECT_FALSE(asha->next(trials, true)->promoted.has_value());
    // A sixth makes room for a second one: the long paused trial 1.
    trials.push_back({5, {0.5}, TrialState::running, {}, {}, {{1, {1.0}}}});
    EXPECT_EQ(asha->decide(trials, 5).action, Action::pause);
    trials[5].state = TrialState::paused;
    EXPECT_EQ(asha->next(trials, false)->promoted, 1);
    // Higher rungs come first: twelve at the lowest make room for trial 3, too.
    for (int64_t i = 6; i < 12; ++i) trials.push_back({i, {0.5}, TrialState::paused, {}, {}, {{1, {2.0}}}});
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
        trials[i].reports[3] = {0.4 - 0.1 * static_cast<double>(i)};
        trials[i].state = TrialState::paused;
    }
    const auto next = asha->next(trials, true);
    EXPECT_EQ(next->promoted, 2);
    EXPECT_EQ(next->until, 9);
    // A trial that violates a constraint stays where it is.
    trials[2].violations = {0.1};
    EXPECT_EQ(asha->next(trials, true)->promoted, 1);
    trials[1].violations = trials[0].violations = {0.2};
    EXPECT_EQ(asha->next(trials, true)->promoted, 3);
}

TEST(Asha, FindsTheBestOfALearningCurveProblemInAQuarterOfTheEpochs) {
    const Study full = run_scheduled(*scheduler_of(named("none")), learning_curve, 256, 16);
    const Study asha = run_scheduled(*scheduler_of(named("asha")), learning_curve, 256, 16);
    EXPECT_EQ(asha.trials.size(), 256u);
    EXPECT_LE(4 * asha.epochs, full.epochs);
    EXPECT_GT(asha.promotions, 0);
    EXPECT_LT(best_value(asha.trials), best_value(full.trials) + 0.002);
    // A quarter of the trials in full, without a scheduler, does not find it.
    const Study few = run_scheduled(*scheduler_of(named("none")), learning_curve, asha.epochs / 27, 16);
    EXPECT_GT(best_value(few.trials), best_value(asha.trials) + 0.002);
}

TEST(Asha, NothingIsLostWhenTheBudgetEnds) {
    const Study study = run_scheduled(*scheduler_of(named("asha", {1, 3, 9})), learning_curve, 27, 4);
    std::vector<int64_t> reached(3, 0);
    for (const Trial& trial : study.trials)
        for (size_t rung = 0; rung < 3; ++rung) reached[rung] += trial.reports.contains(Rungs{1, 3, 9}.steps()[rung]) ? 1 : 0;
    EXPECT_EQ(reached[0], 27);
    EXPECT_GE(reached[1], 9);
    EXPECT_GE(reached[2], 3);
    EXPECT_EQ(count_of(study.trials, TrialState::running), 0);
}

TEST(Asha, SeveralObjectivesByFrontOrByTheNamedOne) {
    const std::vector<Objectives> values = {{1, 9}, {9, 1}, {5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}, {9.5, 9.5}, {10, 10}};
    std::vector<Trial> trials = side_by_side(values, 1);
    const auto both = scheduler_of(named("asha"));
    SchedulerOptions options = named("asha");
    options.objective = 1;
    const auto second = scheduler_of(options);
    for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(both->decide(trials, i).action, i < 3 ? Action::proceed : Action::pause) << i;
        const bool is_best_of_second = i == 1 || i == 2 || i == 3;
        EXPECT_EQ(second->decide(trials, i).action, is_best_of_second ? Action::proceed : Action::pause) << i;
    }
}

TEST(Hyperband, RunsExactlyTheBudgets) {
    for (const size_t lanes : {1u, 5u, 64u}) {
        const Study study = run_scheduled(*scheduler_of(named("hyperband", {1, 3, 9})), learning_curve, 2 * (9 + 5 + 3), lanes);
        // {9, 1} {3, 3} {1, 9}; {5, 3} {1, 9}; {3, 9}
        const int64_t once = (9 * 1 + 3 * 2 + 1 * 6) + (5 * 3 + 1 * 6) + 3 * 9;
        EXPECT_EQ(study.epochs, 2 * once) << lanes;
        EXPECT_EQ(count_of(study.trials, TrialState::complete), 2 * (1 + 1 + 3)) << lanes;
        EXPECT_EQ(count_of(study.trials, TrialState::running), 0) << lanes;
        // The first bracket's only full trial is the best of its rungs.
        double best = std::numeric_limits<double>::infinity(), full = best;
        for (size_t i = 0; i < 9; ++i) {
            if (!study.trials[i].reports.contains(3)) continue;
            best = std::min(best, study.trials[i].reports.at(3).front());
            if (study.trials[i].reports.contains(9)) full = study.trials[i].reports.at(3).front();
        }
        EXPECT_EQ(full, best) << lanes;
    }
}

TEST(Hyperband, EndsWhenTrialsFailAndWhenTheBudgetCutsABracket) {
    const Curve fails = [](const Trial& trial, int64_t epochs) {
        return trial.number % 3 == 0 ? Objectives{std::nan("")} : learning_curve(trial, epochs);
    };
    const Study study = run_scheduled(*scheduler_of(named("hyperband", {1, 3, 9})), fails, 7, 2);
    EXPECT_EQ(count_of(study.trials, TrialState::failed), 3);
    EXPECT_GE(count_of(study.trials, TrialState::complete), 1);
    EXPECT_EQ(count_of(study.trials, TrialState::running), 0);
}

TEST(Hyperband, PassesOverTrialsThatViolateAConstraint) {
    const auto hyperband = scheduler_of(named("hyperband", {1, 3, 9}));
    std::vector<Trial> trials = side_by_side({{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}}, 1);
    for (Trial& trial : trials) {
        trial.state = TrialState::paused;
        trial.violations = {trial.number < 7 ? 1.0 : 0.0};
    }
    for (const int64_t number : {7, 8}) {
        ASSERT_EQ(hyperband->next(trials, true)->promoted, number);
        trials[static_cast<size_t>(number)].state = TrialState::running;
    }
    EXPECT_FALSE(hyperband->next(trials, true)->promoted.has_value());  // both must come to the next rung first
    for (const size_t number : {7u, 8u}) {
        trials[number].state = TrialState::paused;
        trials[number].reports[3] = {10.0 - static_cast<double>(number)};
    }
    const auto next = hyperband->next(trials, true);
    EXPECT_EQ(next->promoted, 8);
    EXPECT_EQ(next->until, 9);
}

TEST(Median, PrunesTheKnownBadHalf) {
    const auto median = scheduler_of(named("median"));
    std::vector<Objectives> values;
    for (int i = 0; i < 20; ++i) values.push_back({i % 2 == 0 ? 0.1 * i : 10.0 + i});
    const std::vector<Trial> trials = side_by_side(values, 3);
    for (size_t i = 0; i < 20; ++i)
        EXPECT_EQ(median->decide(trials, i).action, i % 2 == 0 ? Action::proceed : Action::prune) << i;
}

TEST(Median, SparesTrialsInTheWarmupAndWithoutCompany) {
    SchedulerOptions options = named("median");
    options.warmup = 3;
    const auto median = scheduler_of(options);
    const std::vector<Objectives> values = {{9}, {1}, {1}, {1}, {1}};
    EXPECT_EQ(median->decide(side_by_side(values, 2), 0).action, Action::proceed);
    EXPECT_EQ(median->decide(side_by_side(values, 3), 0).action, Action::prune);
    EXPECT_EQ(median->decide(side_by_side({{9}, {1}, {1}, {1}}, 3), 0).action, Action::proceed);
    EXPECT_EQ(median->decide(side_by_side({{9}, {1}, {1}, {1}, {std::nan("")}}, 3), 0).action, Action::proceed);
}

TEST(Median, PrunesTheParetoDominated) {
    const auto median = scheduler_of(named("median"));
    std::vector<Trial> trials = side_by_side({{1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {4, 4}}, 3);
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(median->decide(trials, i).action, i < 5 ? Action::proceed : Action::prune) << i;
    // By the named objective it is in the better half.
    SchedulerOptions options = named("median");
    options.objective = 0;
    trials[5].reports[3] = {1.5, 9};
    EXPECT_EQ(scheduler_of(options)->decide(trials, 5).action, Action::proceed);
    EXPECT_EQ(median->decide(trials, 5).action, Action::prune);
    // A violated constraint is worse than any value.
    trials[0].violations = {1};
    EXPECT_EQ(median->decide(trials, 0).action, Action::prune);
}

TEST(Median, SavesEpochsAndKeepsTheBest) {
    const Study full = run_scheduled(*scheduler_of(named("none")), learning_curve, 60, 8);
    const Study median = run_scheduled(*scheduler_of(named("median")), learning_curve, 60, 8);
    EXPECT_LT(median.epochs, 0.7 * static_cast<double>(full.epochs));
    EXPECT_LT(best_value(median.trials), best_value(full.trials) + 0.01);
}

TEST(Population, TheWorstQuarterCopiesFromTheBest) {
    const Space space = space_of("lr = { log = [1e-5, 1e-1] }\n");
    SchedulerOptions options = named("pbt");
    options.population = 8;
    const auto pbt = scheduler_of(options, space);
    std::vector<Trial> trials = side_by_side({{8}, {1}, {3}, {4}, {5}, {6}, {2}, {7}}, 1);
    for (size_t i = 0; i < 8; ++i) trials[i].configuration = {1e-4 * static_cast<double>(i + 1)};
    for (size_t i = 0; i < 8; ++i) {
        const Decision decision = pbt->decide(trials, i);
        const bool is_worst = i == 0 || i == 7;
        ASSERT_EQ(decision.action, is_worst ? Action::copy : Action::proceed) << i;
        if (!is_worst) continue;
        ASSERT_TRUE(decision.from == 1 || decision.from == 6) << decision.from;
        ASSERT_EQ(decision.configuration.size(), 1u);
        EXPECT_TRUE(space.parameters[0].holds(decision.configuration[0]));
        EXPECT_NE(decision.configuration, trials[static_cast<size_t>(decision.from)].configuration);
        EXPECT_EQ(decision.configuration, pbt->decide(trials, i).configuration);
    }
    std::set<int64_t> sources;
    for (options.seed = 0; options.seed < 20; ++options.seed)
        sources.insert(scheduler_of(options, space)->decide(trials, 0).from);
    EXPECT_EQ(sources, (std::set<int64_t>{1, 6}));
    // A best one that has run on no longer has the weights of this step; one that violates a constraint is no example.
    trials[1].reports[2] = {0.5};
    trials[6].violations = {1};
    EXPECT_EQ(pbt->decide(trials, 7).action, Action::proceed);
}

TEST(Population, PerturbsWithinTheSpaceAndRarelyFar) {
    const Space space = space_of(
        "lr = { log = [1e-5, 1e-1] }\ndrop = { uniform = [0, 1] }\nwidth = { int = [1, 4] }\nkind = { choice = [1, 2, 3] }\n"
        "decay = { log = [1e-6, 1], or = 0 }\n");
    const Configuration from{1e-3, 0.95, 2, 1, 0};
    int kept_lr = 0, kept_kind = 0, kept_decay = 0;
    for (int64_t i = 0; i < 1000; ++i) {
        Stream stream(2, i, Purpose::perturbation);
        const Configuration to = perturbed(space, from, stream);
        for (size_t p = 0; p < space.size(); ++p) EXPECT_TRUE(space.parameters[p].holds(to[p])) << p << ": " << to[p];
        const double factor = to[0] / from[0];
        kept_lr += std::abs(factor - 1.2) < 1e-9 || std::abs(factor - 1 / 1.2) < 1e-9 ? 1 : 0;
        kept_kind += to[3] == 1 ? 1 : 0;
        kept_decay += to[4] == 0 ? 1 : 0;
    }
    EXPECT_NEAR(kept_lr, 750, 60);
    EXPECT_NEAR(kept_kind, 833, 60);
    EXPECT_NEAR(kept_decay, 812, 60);
}

TEST(Population, KeepsItsSize) {
    SchedulerOptions options = named("pbt");
    options.population = 4;
    const auto pbt = scheduler_of(options);
    std::vector<Trial> trials = side_by_side({{1}, {2}, {3}}, 1);
    EXPECT_TRUE(pbt->next(trials, true).has_value());
    trials = side_by_side({{1}, {2}, {3}, {4}}, 1);
    EXPECT_FALSE(pbt->next(trials, true).has_value());
    trials[0].state = TrialState::complete;
    EXPECT_TRUE(pbt->next(trials, true).has_value());
}

}  // namespace
}  // namespace millrace::search
