#include "storage/study.h"

#include <chrono>
#include <cmath>
#include <limits>

#include "storage/distribution.h"
#include "storage/made_up_study.h"

namespace millrace::storage {
namespace {

using search::TrialState;
using std::chrono::seconds;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

TEST(Distribution, JsonIsLetterByLetterWhatOptunaWrites) {
    const auto space = every_kind();
    EXPECT_EQ(distribution_json(space.parameters[0]),
              R"({"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.1, "log": true}})");
    EXPECT_EQ(distribution_json(space.parameters[2]),
              R"({"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 0.5, "log": false}})");
    EXPECT_EQ(distribution_json(space.parameters[3]),
              R"({"name": "IntDistribution", "attributes": {"log": false, "step": 4, "low": 4, "high": 16}})");
    EXPECT_EQ(distribution_json(space.parameters[4]),
              R"({"name": "CategoricalDistribution", "attributes": {"choices": [32, "r\"elu\u00e9", true, 0.5]}})");
}

TEST(Distribution, NumbersThatAreNotFiniteSurviveJson) {
    const auto back = numbers_of_json(json_numbers({1.5, kNan, kInf, -kInf, 1e-300}));
    ASSERT_TRUE(back && back->size() == 5);
    EXPECT_EQ((*back)[0], 1.5);
    EXPECT_TRUE(std::isnan((*back)[1]));
    EXPECT_EQ((*back)[2], kInf);
    EXPECT_EQ((*back)[3], -kInf);
    EXPECT_EQ((*back)[4], 1e-300);
    EXPECT_EQ(numbers_of_json("[]")->size(), 0U);
    for (const char* broken : {"", "[", "1", "[1", "[1 2]", "[x]", "{\"a\": 1}", "[1]2]"})
        EXPECT_FALSE(numbers_of_json(broken)) << broken;
}

TEST(StudyTime, TextReadsBackToTheMicrosecond) {
    const WallTime time{seconds{1'790'000'000} + std::chrono::microseconds{250'001}};
    EXPECT_EQ(time_text(time), "2026-09-21 14:13:20.250001");
    EXPECT_EQ(time_of_text(time_text(time)), time);
    EXPECT_EQ(time_of_text("2026-09-21 14:13:20"), WallTime{seconds{1'790'000'000}});
    EXPECT_FALSE(time_of_text("2026-13-21 14:13:20"));
    EXPECT_FALSE(time_of_text("yesterday"));
}

INSTANTIATE_TEST_SUITE_P(Databases, StudyTest, testing::Values("sqlite", "postgres"),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(StudyTest, EveryKindAndStateReadsBack) {
    {
        Study study = open(two_objectives());
        const std::vector<NewTrial> added = {{kInRange, false, {{"recipe", "a = \"b\"\n"}}},
                                             {kWithAlternative},
                                             {kInRange},
                                             {kInRange},
                                             {kInRange, true},
                                             {kInRange}};
        EXPECT_EQ(must(study.add(added)), (Numbers{0, 1, 2, 3, 4, 5}));
        const std::vector<Report> reports = {
            {0, 1, {-0.5, 3}, 0}, {0, 3, {-0.75, 2}, 1}, {1, 1, {kNan, kInf}}, {1, 2, {-kInf, -kInf}}};
        EXPECT_EQ(must(study.report(reports)), Numbers{});
        clock_.advance(seconds{5});
        const std::vector<Outcome> outcomes = {{0, TrialState::complete, {-0.75, 2}, {-1, 0.5, kInf}, {{"commit", "abc"}}},
                                               {1, TrialState::pruned, {}, {}, {}},
                                               {2, TrialState::failed, {}, {}, {}},
                                               {3, TrialState::paused, {}, {}, {}}};
        EXPECT_EQ(must(study.finish(outcomes)), Numbers{});
    }
    Study again = open(two_objectives(), "w2");
    const auto trials = must(again.trials());
    ASSERT_EQ(trials.size(), 6U);
    const TrialState states[] = {TrialState::complete, TrialState::pruned,  TrialState::failed,
                                 TrialState::paused,   TrialState::running, TrialState::running};
    for (size_t i = 0; i < trials.size(); ++i) {
        EXPECT_EQ(trials[i].trial.number, static_cast<int64_t>(i));
        EXPECT_EQ(trials[i].trial.state, states[i]) << i;
        EXPECT_EQ(trials[i].trial.configuration, i == 1 ? kWithAlternative : kInRange) << i;
        EXPECT_EQ(trials[i].is_waiting, i == 4) << i;
        EXPECT_EQ(trials[i].worker, i == 4 ? "" : "w1") << i;
    }
    const StoredTrial& first = trials[0];
    EXPECT_EQ(first.trial.values, (search::Objectives{-0.75, 2}));
    EXPECT_EQ(first.trial.violations, (std::vector<double>{-1, 0.5, kInf}));
    EXPECT_EQ(first.trial.reports, (std::map<int64_t, search::Objectives>{{1, {-0.5, 3}}, {3, {-0.75, 2}}}));
    EXPECT_EQ(first.rungs, (std::map<int64_t, double>{{0, -0.5}, {1, -0.75}}));
    EXPECT_EQ(first.attributes, (Attributes{{"commit", "abc"}, {"recipe", "a = \"b\"\n"}}));
    EXPECT_EQ(*first.completed - *first.started, seconds{5});
    if (GetParam() == "sqlite") {
        EXPECT_EQ(*first.completed, clock_.wall());
    }
    EXPECT_FALSE(trials[4].started);
    const auto& diverged = trials[1].trial.reports;
    EXPECT_TRUE(std::isnan(diverged.at(1)[0]));
    EXPECT_EQ(diverged.at(1)[1], kInf);
    EXPECT_EQ(diverged.at(2), (search::Objectives{-kInf, -kInf}));
}

TEST_P(StudyTest, ValuesHaveTheMetricsSignAndTypeInTheDatabase) {
    Study study = open(one_objective());
    must(study.add(std::vector<NewTrial>{{kInRange}, {kInRange}}));
    must(study.report(std::vector<Report>{{0, 1, {-0.5}}, {0, 2, {kNan}}, {0, 3, {-kInf}}, {0, 4, {kInf}}, {0, 1, {-0.25}}}));
    must(
        study.finish(std::vector<Outcome>{{0, TrialState::complete, {-0.5}, {}, {}}, {1, TrialState::complete, {kNan}, {}, {}}}));
    const auto database = must(open_database(place_));
    const auto run = [&](const char* sql) { return must(database->run(sql)); };
    EXPECT_EQ(run("SELECT value, value_type FROM trial_values"), (std::vector<Row>{{0.5, "FINITE"}}));
    EXPECT_EQ(run("SELECT state FROM trials ORDER BY number"), (std::vector<Row>{{"COMPLETE"}, {"FAIL"}}));
    EXPECT_EQ(run("SELECT intermediate_value, intermediate_value_type FROM trial_intermediate_values ORDER BY step"),
              (std::vector<Row>{{0.25, "FINITE"}, {Value{}, "NAN"}, {Value{}, "INF_POS"}, {Value{}, "INF_NEG"}}));
    EXPECT_EQ(run("SELECT direction FROM study_directions"), (std::vector<Row>{{"MAXIMIZE"}}));
    EXPECT_EQ(run("SELECT version_num, schema_version FROM alembic_version, version_info"),
              (std::vector<Row>{{"v3.2.0.a", int64_t{12}}}));
}

TEST_P(StudyTest, AnotherSpaceOrObjectiveIsRefusedWithTheDifference) {
    open(one_objective());
    const auto refusal = [&](const StudyDescription& description) {
        const auto opened = open_study(place_, description, "w2", clock_);
        return opened.ok() ? "" : opened.error().text();
    };
    EXPECT_EQ(refusal(one_objective()), "");
    auto other = one_objective();
    other.space.parameters[0].high = 1;
    EXPECT_NE(refusal(other).find("'optim.lr' is {"), std::string::npos) << refusal(other);
    other = one_objective();
    other.space.parameters.pop_back();
    EXPECT_NE(refusal(other).find("the study searches 'model.shape', this space does not"), std::string::npos) << refusal(other);
    other = one_objective();
    other.space.parameters[0].alternative = 0;
    EXPECT_NE(refusal(other).find("this space searches 'optim.lr:or', the study does not"), std::string::npos) << refusal(other);
    other = one_objective();
    other.objectives[0].maximize = false;
    EXPECT_NE(refusal(other).find("maximize accuracy in the study, minimize accuracy here"), std::string::npos) << refusal(other);
    other.name = "another";
    EXPECT_EQ(refusal(other), "");
}

TEST_P(StudyTest, ClaimsTakeWaitingAndForsakenTrials) {
    Study first = open(one_objective(), "w1"), second = open(one_objective(), "w2");
    must(first.add(std::vector<NewTrial>{{kInRange}, {kInRange, true}, {kInRange, true}, {kInRange}}));
    must(first.finish(std::vector<Outcome>{{3, TrialState::paused, {}, {}, {}}}));
    EXPECT_EQ(must(second.claim(1, seconds{60})), Numbers{1});
    const seconds slack{GetParam() == "sqlite" ? 0 : 1};  // two workers see a server's clock at different moments
    clock_.advance(seconds{60} - slack);
    EXPECT_EQ(must(second.heartbeat(Numbers{1})), Numbers{});
    EXPECT_EQ(must(second.claim(8, seconds{60})), Numbers{2}) << "a heartbeat as old as the grace period is in time";
    clock_.advance(seconds{1} + 2 * slack);
    EXPECT_EQ(must(second.claim(8, seconds{60})), Numbers{0}) << "trial 3 is paused, 1 and 2 are alive";
    EXPECT_EQ(must(first.report(std::vector<Report>{{0, 1, {1}}})), Numbers{0});
    EXPECT_EQ(must(first.finish(std::vector<Outcome>{{0, TrialState::complete, {1}, {}, {}}})), Numbers{0});
    EXPECT_EQ(must(second.report(std::vector<Report>{{0, 1, {2}}})), Numbers{});
    EXPECT_EQ(must(second.trials())[0].trial.reports.at(1), search::Objectives{2});
    clock_.advance(seconds{3600});
    EXPECT_EQ(must(second.report(std::vector<Report>{{0, 2, {2}}})), Numbers{});
    EXPECT_EQ(must(first.claim(8, seconds{60})), (Numbers{1, 2})) << "the report of trial 0 was a heartbeat";
}

TEST_P(StudyTest, TrialsChosenByWhatIsOutOfDateAreNotAdded) {
    Study one = open(one_objective(), "w1"), two = open(one_objective(), "w2");
    const std::vector<NewTrial> trials = {{kInRange}, {kWithAlternative}};
    EXPECT_EQ(must(one.add(trials, 0)), (Numbers{0, 1}));
    EXPECT_EQ(must(two.add(trials, 0)), Numbers{}) << "there are two by now";
    EXPECT_EQ(must(two.add(trials, 2)), (Numbers{2, 3}));
    EXPECT_EQ(must(one.trials()).size(), 4U);
}

TEST_P(StudyTest, TrialsAreGivenBackPausedAndResumedOnce) {
    Study first = open(one_objective(), "w1"), second = open(one_objective(), "w2");
    must(first.add(std::vector<NewTrial>{{kInRange}, {kInRange}}));
    EXPECT_EQ(must(first.give_back(Numbers{0})), Numbers{});
    EXPECT_EQ(must(first.give_back(Numbers{0})), Numbers{0});
    EXPECT_EQ(must(second.claim(8, seconds{60})), Numbers{0});
    must(first.finish(std::vector<Outcome>{{1, TrialState::paused, {}, {}, {}}}));
    EXPECT_EQ(must(first.heartbeat(Numbers{1})), Numbers{1}) << "a paused trial is nobody's";
    EXPECT_EQ(must(second.resume(Numbers{0, 1})), Numbers{1});
    EXPECT_EQ(must(first.resume(Numbers{1})), Numbers{});
    EXPECT_EQ(must(second.finish(std::vector<Outcome>{{1, TrialState::complete, {1}, {}, {}}})), Numbers{});
    EXPECT_EQ(must(second.finish(std::vector<Outcome>{{1, TrialState::complete, {2}, {}, {}}})), Numbers{1});
    EXPECT_EQ(must(second.trials())[1].trial.values, search::Objectives{1});
}

TEST_P(StudyTest, PausedTrialsOfAStudyThatEndedArePrunedUntilTheyAreResumed) {
    Study study = open(two_objectives());
    must(study.add(std::vector<NewTrial>{{kInRange}, {kInRange}, {kInRange}, {kInRange}}));
    must(study.report(std::vector<Report>{{0, 1, {-0.5, 3}}, {0, 3, {-0.75, 2}}, {1, 1, {-0.25, 4}}, {2, 1, {-0.125, 5}}}));
    must(study.finish(std::vector<Outcome>{
        {0, TrialState::paused, {}, {}, {}}, {1, TrialState::paused, {}, {}, {}}, {2, TrialState::pruned, {-0.125, 5}, {}, {}}}));
    EXPECT_FALSE(must(study.trials())[0].has_ended);
    clock_.advance(seconds{5});
    for (int times = 0; times < 2; ++times) {  // every worker of the study does it
        const auto pruned = study.prune_paused();
        ASSERT_TRUE(pruned.ok()) << pruned.error().text();
    }
    const auto database = must(open_database(place_));
    const auto run = [&](const char* sql) { return must(database->run(sql)); };
    const auto states = [&] { return run("SELECT state FROM trials ORDER BY number"); };
    const auto values = [&] {
        return run(
            "SELECT t.number, v.value FROM trial_values v JOIN trials t ON t.trial_id = v.trial_id "
            "ORDER BY t.number, v.objective");
    };
    EXPECT_EQ(states(), (std::vector<Row>{{"PRUNED"}, {"PRUNED"}, {"PRUNED"}, {"RUNNING"}}));
    EXPECT_EQ(values(), (std::vector<Row>{{int64_t{0}, 0.75},
                                          {int64_t{0}, 2.0},
                                          {int64_t{1}, 0.25},
                                          {int64_t{1}, 4.0},
                                          {int64_t{2}, 0.125},
                                          {int64_t{2}, 5.0}}));
    const auto ended = must(study.trials());
    EXPECT_EQ(ended[0].trial.state, TrialState::paused) << "it may go on when the study does";
    EXPECT_TRUE(ended[0].has_ended);
    EXPECT_EQ(*ended[0].completed - *ended[0].started, seconds{5});
    EXPECT_EQ(ended[2].trial.state, TrialState::pruned) << "this one for good";

    EXPECT_EQ(must(study.resume(Numbers{0, 2})), Numbers{0});
    EXPECT_EQ(states(), (std::vector<Row>{{"RUNNING"}, {"PRUNED"}, {"PRUNED"}, {"RUNNING"}}));
    EXPECT_EQ(values().size(), 4U);
    EXPECT_FALSE(must(study.trials())[0].completed);
    EXPECT_EQ(must(study.finish(std::vector<Outcome>{{0, TrialState::complete, {-0.875, 1}, {}, {}}})), Numbers{});
    EXPECT_EQ(must(study.trials())[0].trial.values, (search::Objectives{-0.875, 1}));
}

TEST_P(StudyTest, WhatDoesNotFitIsRefusedAsAWhole) {
    Study study = open(two_objectives());
    EXPECT_FALSE(study.add(std::vector<NewTrial>{{kInRange}, {{1, 0, 0, 4, 0}}}).ok()) << "a learning rate of 1 is outside";
    EXPECT_TRUE(must(study.trials()).empty());
    must(study.add(std::vector<NewTrial>{{kInRange}, {kInRange}}));
    EXPECT_FALSE(study.report(std::vector<Report>{{0, 1, {1, 1}}, {1, 1, {1}}}).ok()) << "one value, two objectives";
    EXPECT_FALSE(
        study.finish(std::vector<Outcome>{{0, TrialState::pruned, {}, {}, {}}, {1, TrialState::complete, {1}, {}, {}}}).ok());
    EXPECT_FALSE(study.heartbeat(Numbers{2}).ok()) << "there is no trial 2";
    for (const StoredTrial& stored : must(study.trials())) {
        EXPECT_TRUE(stored.trial.reports.empty());
        EXPECT_EQ(stored.trial.state, TrialState::running);
    }
}

TEST_P(StudyTest, AStudyOf280TrialsAnd30ReportsIsWrittenAndRead) {
    Study study = open(one_objective());
    must(study.add(std::vector<NewTrial>(280, NewTrial{kInRange})));
    std::vector<Report> reports(280);
    for (int64_t step = 1; step <= 30; ++step) {
        for (int64_t i = 0; i < 280; ++i) reports[static_cast<size_t>(i)] = {i, step, {-1.0 / static_cast<double>(step)}};
        ASSERT_EQ(must(study.report(reports)), Numbers{});
    }
    std::vector<Outcome> outcomes;
    for (int64_t i = 0; i < 280; ++i) outcomes.push_back({i, TrialState::complete, {-1}, {}, {}});
    must(study.finish(outcomes));
    const auto trials = must(study.trials());
    EXPECT_EQ(trials.size(), 280U);
    for (const StoredTrial& stored : trials) ASSERT_EQ(stored.trial.reports.size(), 30U);
}

}  // namespace
}  // namespace millrace::storage
