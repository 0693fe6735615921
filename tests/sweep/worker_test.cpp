#include "sweep/worker.h"
#include "base/json.h"

#include <algorithm>
#include <latch>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "sweep/fake_lanes.h"
#include "sweep/report.h"

namespace millrace::sweep {
namespace {

using search::TrialState;
using SweepWorker = Sweeps;

TEST_F(SweepWorker, EveryTrialRunsItsFullLengthOnFewLanes) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 20\nfinalists = 0\n");
    const auto worker = run(of, options(8));
    EXPECT_EQ(count(*worker, TrialState::complete), 20);
    EXPECT_EQ(log_.created, std::vector{8});
    EXPECT_EQ(log_.fills, 20);
    EXPECT_EQ(log_.epochs, 27) << "three lane-fulls of nine epochs";
    for (const search::Trial& trial : worker->ledger().trials()) {
        EXPECT_EQ(trial.reports.size(), 9u);
        EXPECT_EQ(trial.values, trial.reports.at(9));
    }
    EXPECT_EQ(worker->progress().trial_epochs, 180);
    EXPECT_NE(worker->progress().best.find("validation_loss"), std::string::npos);
}

TEST_F(SweepWorker, APromotedTrialEqualsOneThatNeverPaused) {
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 27\nfinalists = 0\n");
    const auto worker = run(of, options(4));
    EXPECT_GT(log_.restores, 3);
    EXPECT_EQ(log_.fills, 27) << "a paused trial is not begun again";
    EXPECT_GE(count(*worker, TrialState::complete), 3);
    EXPECT_GT(count(*worker, TrialState::paused), 10);
    EXPECT_EQ(count(*worker, TrialState::running), 0);
    for (const search::Trial& trial : worker->ledger().trials()) {
        const auto expected = alone(of, trial, 100, trial.last_step());
        ASSERT_EQ(expected.size(), trial.reports.size()) << trial.number;
        for (const auto& [epoch, value] : expected) EXPECT_EQ(trial.reports.at(epoch).front(), value) << trial.number;
    }
}

TEST_F(SweepWorker, SlicesBeyondTheLimitGoThroughFiles) {
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 27\nfinalists = 0\n");
    auto with = options(4);
    with.slice_bytes = 2 * sizeof(FakeState);
    const auto worker = run(of, with);
    EXPECT_EQ(log_.fills, 27);
    for (const search::Trial& trial : worker->ledger().trials())
        for (const auto& [epoch, value] : alone(of, trial, 100, trial.last_step()))
            EXPECT_EQ(trial.reports.at(epoch).front(), value);
}

TEST_F(SweepWorker, ADivergedTrialFailsAndNeverWins) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 12\nfinalists = 12\nreplicates = 0\n",
                               "\"optim.lr\" = { choice = [0.001, 0.9] }\n\"optim.weight_decay\" = { uniform = [0.0, 0.1] }\n");
    const auto worker = run(of, options(4));
    int failed = 0;
    for (const search::Trial& trial : worker->ledger().trials()) {
        if (trial.configuration[0] != 1) continue;
        ++failed;
        EXPECT_EQ(trial.state, TrialState::failed);
        EXPECT_EQ(trial.reports.size(), 1u) << "its lane is free at once";
    }
    EXPECT_GT(failed, 0);
    EXPECT_LT(failed, 12);
    const auto finalists = finalist_results(worker->ledger(), of);
    EXPECT_EQ(finalists.size(), static_cast<std::size_t>(12 - failed));
    for (const FinalistResult& finalist : finalists) EXPECT_EQ(finalist.configuration[0], 0);
}

TEST_F(SweepWorker, AViolatedConstraintKeepsATrialFromTheFinals) {
    const StudyFile of = study(
        "sampler = \"random\"\ntrials = 12\nfinalists = 12\nreplicates = 1\n"
        "constraints = [{ metric = \"parameters\", at_most = 4000 }]\n",
        "\"train.batch\" = { choice = [32, 64] }\n\"optim.lr\" = { log = [1e-4, 1e-2] }\n");
    const auto worker = run(of, options(4));
    EXPECT_EQ(std::ranges::count(log_.created, 4), 2) << "one program for each structure";
    int large = 0;
    for (const search::Trial& trial : worker->ledger().trials()) {
        if (trial.configuration[0] == 1) {
            ++large;
            EXPECT_FALSE(worker->ledger().is_final(trial.number));
            EXPECT_EQ(trial.violations, std::vector<double>{2400});
        }
    }
    EXPECT_GT(large, 0);
    for (const FinalistResult& finalist : finalist_results(worker->ledger(), of)) {
        EXPECT_EQ(finalist.configuration[0], 0);
        EXPECT_EQ(finalist.reruns.size(), 1u);
    }
}

TEST_F(SweepWorker, EqualConfigurationsAreReplicatesWithOtherSeeds) {
    const StudyFile of =
        study("sampler = \"random\"\ntrials = 9\nfinalists = 0\n", "\"optim.lr\" = { choice = [0.001, 0.01] }\n");
    const auto worker = run(of, options(4));
    std::map<double, std::vector<std::string>> seeds;
    for (const search::Trial& trial : worker->ledger().trials())
        seeds[trial.configuration[0]].push_back(worker->ledger().attribute(trial.number, kSeedAttribute));
    ASSERT_EQ(seeds.size(), 2u);
    for (const auto& [choice, of_choice] : seeds)
        for (std::size_t i = 0; i < of_choice.size(); ++i) EXPECT_EQ(of_choice[i], std::to_string(100 + i));
}

TEST_F(SweepWorker, FinalistsAreTrainedAgainAndTestedOnce) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 10\nfinalists = 3\nreplicates = 2\n");
    const auto worker = run(of, options(6));
    EXPECT_EQ(worker->ledger().searched().size(), 10u);
    EXPECT_EQ(worker->ledger().trials().size(), 16u);
    EXPECT_EQ(log_.tests, 1) << "all six end in the same epoch";
    const auto finalists = finalist_results(worker->ledger(), of);
    ASSERT_EQ(finalists.size(), 3u);
    for (const FinalistResult& finalist : finalists) {
        ASSERT_EQ(finalist.reruns.size(), 2u);
        EXPECT_EQ(finalist.test.at("test_loss").count, 2u);
        EXPECT_EQ(worker->ledger().attribute(finalist.reruns[0], kSeedAttribute), "101");
        EXPECT_EQ(worker->ledger().attribute(finalist.reruns[1], kSeedAttribute), "102");
        EXPECT_NEAR(finalist.objectives[0].spread, 1e-4 / std::sqrt(2.0), 1e-9) << "the seeds' noise";
    }
    EXPECT_LE(finalists[0].objectives[0].mean, finalists[1].objectives[0].mean);
    const int epochs = log_.epochs;
    run(of, options(6, "w2"));
    EXPECT_EQ(log_.epochs, epochs) << "nothing is left to do";
}

TEST_F(SweepWorker, PopulationTrainingCopiesWeightsAndReplaysThemForFinalists) {
    const StudyFile of = study(
        "sampler = \"random\"\nscheduler = \"pbt\"\npopulation = 8\ntrials = 8\nrungs = { last = 6 }\nfinalists = 1\nreplicates "
        "= 1\n");
    const auto worker = run(of, options(8));
    EXPECT_GT(log_.copies, 0);
    EXPECT_EQ(count(*worker, TrialState::complete), 9);
    int changed = 0;
    for (const search::Trial& trial : worker->ledger().trials()) {
        const auto history = history_of_text(worker->ledger().attribute(trial.number, kHistoryAttribute), of.space);
        if (!history) continue;
        ++changed;
        EXPECT_EQ(history->rbegin()->second, trial.configuration);
        // Following the history from the start gives the weights that were copied: the seed only adds noise.
        FakeLog log;
        FakeRunner runner(log, 0, 1);
        ASSERT_TRUE(runner.fill(0, recipe_of(of, history->begin()->second, 0)).ok());
        double loss = 0;
        for (std::int64_t epoch = 1; epoch <= 6; ++epoch) {
            loss = runner.run_epoch(nullptr)->front()->metrics.at("validation_loss");
            const auto next = history->find(epoch);
            const auto set = next == history->end() ? base::ok() : runner.set(0, recipe_of(of, next->second, 0));
            ASSERT_TRUE(set.ok());
        }
        const double noise = 1e-4 * static_cast<double>(std::stoul(worker->ledger().attribute(trial.number, kSeedAttribute)) % 7);
        EXPECT_NEAR(trial.values[0], loss + noise, 1e-12) << trial.number;
    }
    EXPECT_GT(changed, 1);
    EXPECT_EQ(finalist_results(worker->ledger(), of).front().reruns.size(), 1u);
    auto few = options(4, "w2");
    EXPECT_NE(Worker::open(of, few, factory_, base::SteadyClock::shared()).error().text().find("population"), std::string::npos);
}

/// Stops a worker, then lets another one finish; the study must be what an undisturbed one is.
class StoppedSweep : public Sweeps, public ::testing::WithParamInterface<std::tuple<std::string, bool, bool>> {};

TEST_P(StoppedSweep, GoesOnAsIfItHadNotStopped) {
    const auto& [scheduler, within, loses_slices] = GetParam();
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"" + scheduler +
                               "\"\nrungs = { last = 9 }\ntrials = 27\nfinalists = 2\nreplicates = 2\n");
    std::atomic<int> stop{0};
    log_.stop = &stop;
    log_.stop_after = 5;
    log_.stops_within = within;
    auto first = options(8);
    first.stop = &stop;
    const SlowClock slow(log_);  // long epochs are left at once, short ones are finished
    const auto stopped = within ? run(of, first, slow) : run(of, first);
    EXPECT_TRUE(stopped->was_stopped());
    const auto left = stopped->ledger().stored();
    for (const storage::StoredTrial& stored : left.value())
        EXPECT_TRUE(stored.is_waiting || stored.trial.state != TrialState::running) << stored.trial.number;
    if (loses_slices) std::filesystem::remove_all(folder_ / "slices");
    const int before = log_.fills;
    log_.stop = nullptr;
    const auto resumed = run(of, options(8, "w2"));
    if (!loses_slices && scheduler == "none") {
        EXPECT_EQ(log_.fills - before, 27 - 8 + 4) << "saved trials go on";
    }

    EXPECT_EQ(resumed->ledger().searched().size(), 27u);
    EXPECT_EQ(resumed->ledger().trials().size(), 31u);
    EXPECT_EQ(count(*resumed, TrialState::running), 0);
    for (const search::Trial& trial : resumed->ledger().trials()) {
        const std::uint64_t seed = std::stoull(resumed->ledger().attribute(trial.number, kSeedAttribute));
        const auto expected = alone(of, trial, seed, trial.last_step());
        ASSERT_EQ(expected.size(), trial.reports.size()) << trial.number;
        for (const auto& [epoch, value] : expected) EXPECT_EQ(trial.reports.at(epoch).front(), value) << trial.number;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, StoppedSweep,
                         ::testing::Combine(::testing::Values("none", "asha"), ::testing::Bool(), ::testing::Bool()));

TEST_F(SweepWorker, TpeFillsALaneFullOfOneStructure) {
    const StudyFile of = study("sampler = \"tpe\"\ntrials = 40\nfinalists = 0\n",
                               "\"train.batch\" = { choice = [32, 64, 128] }\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    const auto worker = run(of, options(8));
    EXPECT_EQ(count(*worker, TrialState::complete), 40);
    std::vector<double> batches;
    for (const search::Trial& trial : worker->ledger().trials()) batches.push_back(trial.configuration[0]);
    for (std::size_t full = 0; full < 40; full += 8)
        EXPECT_EQ(std::ranges::count(std::span(batches).subspan(full, 8), batches[full]), 8);
    EXPECT_GT(log_.created.size(), 1u) << "the next lane-full is free to be of another";
    EXPECT_EQ(log_.epochs, 45) << "no lane is ever empty: five lane-fulls of nine epochs";
}

TEST_F(SweepWorker, AGridEndsWhenAllCombinationsAreTried) {
    const StudyFile of = study("sampler = \"grid\"\ngrid_points = 3\ntrials = 1000\nfinalists = 0\n",
                               "\"train.batch\" = { choice = [32, 64] }\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    const auto worker = run(of, options(4));
    EXPECT_EQ(count(*worker, TrialState::complete), 6);
}

TEST_F(SweepWorker, ManyStructuresShareTheDeviceUnderAsha) {
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 60\nfinalists = 1\n",
                               "\"train.batch\" = { choice = [32, 64, 128] }\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n");
    const auto worker = run(of, options(8));
    EXPECT_EQ(worker->ledger().searched().size(), 60u);
    EXPECT_EQ(count(*worker, TrialState::running), 0);
    EXPECT_EQ(std::ranges::count(log_.created, 8), 3) << "programs are built once";
    for (const search::Trial& trial : worker->ledger().trials()) {
        if (worker->ledger().is_final(trial.number)) continue;
        for (const auto& [epoch, value] : alone(of, trial, 100, trial.last_step()))
            EXPECT_EQ(trial.reports.at(epoch).front(), value);
    }
}

TEST_F(SweepWorker, TwoWorkersShareAStudy) {
    const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 40\nfinalists = 2\n");
    FakeLog other_log;
    FakeFactory other_factory(other_log);
    std::latch both(2);  // each waits in its first epoch until the other has trials, too
    for (FakeLog* log : {&log_, &other_log})
        log->at_epoch = [&both, log] {
            if (log->epochs == 0) both.arrive_and_wait();
        };
    std::thread other([&] {
        auto worker = Worker::open(of, options(4, "w2"), other_factory, base::SteadyClock::shared());
        ASSERT_TRUE(worker.ok()) << worker.error().text();
        const auto ran = (*worker)->run();
        EXPECT_TRUE(ran.ok()) << ran.error().text();
    });
    const auto worker = run(of, options(4));
    other.join();
    ASSERT_TRUE(worker->ledger().refresh().ok());
    EXPECT_EQ(worker->ledger().searched().size(), 40u) << "the budget is the study's, not a worker's";
    EXPECT_EQ(count(*worker, TrialState::running), 0);
    EXPECT_GT(log_.epochs, 0);
    EXPECT_GT(other_log.epochs, 0);
    EXPECT_EQ(worker->ledger().trials().size(), 46u) << "finals are added once";
}

TEST_F(SweepWorker, TheLastTrialsRunInASmallerProgram) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 20\nfinalists = 1\nreplicates = 2\n");
    const auto worker = run(of, options(16));
    EXPECT_EQ(log_.created, (std::vector{16, 4, 2}));
    EXPECT_EQ(count(*worker, TrialState::complete), 22);
    EXPECT_EQ(log_.restores, 0);
    EXPECT_EQ(log_.epochs, 27);
}

TEST_F(SweepWorker, TrialsFillTheUsualLanesAWholeNumberOfTimes) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 9\nfinalists = 0\n");
    run(of, options(0));
    EXPECT_EQ(log_.created, std::vector{5}) << "twice five instead of eight and one";
}

TEST_F(SweepWorker, FewerLanesAreTakenWhereManyDoNotFit) {
    log_.most_lanes = 3;
    const StudyFile of = study("sampler = \"random\"\ntrials = 10\nfinalists = 0\n");
    const auto worker = run(of, options(0));
    EXPECT_EQ(count(*worker, TrialState::complete), 10);
    EXPECT_EQ(log_.created, std::vector{2}) << "five do not fit";
}

TEST_F(SweepWorker, AConstraintThatNobodyMeasuresIsRefusedBeforeTheWork) {
    auto loaded = load_study(file(std::string(kObjective) + "constraints = [{ metric = \"beauty\", at_least = 1 }]\n"), {});
    ASSERT_TRUE(loaded.ok());
    auto worker = Worker::open(*loaded, options(4), factory_, base::SteadyClock::shared());
    ASSERT_TRUE(worker.ok());
    const auto ran = (*worker)->run();
    ASSERT_FALSE(ran.ok());
    EXPECT_NE(ran.error().text().find("\"beauty\""), std::string::npos) << ran.error().text();
    EXPECT_EQ(log_.epochs, 0);
}

TEST_F(SweepWorker, AMetricThatNobodyMeasuresIsNamedWithThoseThatAre) {
    auto loaded = load_study(file("objectives = [{ metric = \"validation_beauty\", direction = \"maximize\" }]\n"), {});
    ASSERT_TRUE(loaded.ok());
    auto worker = Worker::open(*loaded, options(4), factory_, base::SteadyClock::shared());
    ASSERT_TRUE(worker.ok());
    const auto ran = (*worker)->run();
    ASSERT_FALSE(ran.ok());
    EXPECT_NE(ran.error().text().find("validation_loss"), std::string::npos) << ran.error().text();
    EXPECT_EQ(log_.epochs, 0) << "told before the work";
    const auto left = (*worker)->ledger().stored();
    for (const storage::StoredTrial& stored : left.value()) EXPECT_TRUE(stored.is_waiting);
}

TEST_F(SweepWorker, ProgressShowsCountsSpeedAndTheBest) {
    Progress progress;
    progress.wanted = 280;
    progress.started = 120;
    progress.complete = 40;
    progress.running = 64;
    progress.paused = 15;
    progress.failed = 1;
    progress.lanes = progress.busy_lanes = 64;
    progress.trial_epochs = 960;
    progress.times.total = 10;
    progress.seconds_left = 125;
    progress.best = "trial 7: validation_loss 0.5";
    EXPECT_EQ(progress_text(progress),
              "trials 120 of 280: 40 complete, 64 running, 15 paused, 1 failed  64 of 64 lanes  96 trial-epochs/s  2m 5s left\n"
              "  best trial 7: validation_loss 0.5");
}

TEST_F(SweepWorker, AStudyGoesOnWithItsOwnRecipeAlone) {
    run(study("sampler = \"random\"\ntrials = 4\nfinalists = 0\n"), options(4));
    const auto changed =
        load_study(file(std::string(kObjective) + "sampler = \"random\"\n", kSpace, "[set]\ntrain.batch = 64\n"), {});
    const auto refused = Worker::open(*changed, options(4, "w2"), factory_, base::SteadyClock::shared());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("train.batch = 32, not 64"), std::string::npos) << refused.error().text();
    const auto elsewhere = load_study(file(std::string(kObjective), kSpace, "[set]\nthreads = 1\n"), {});
    EXPECT_TRUE(Worker::open(*elsewhere, options(4, "w2"), factory_, base::SteadyClock::shared()).ok());
}

TEST_F(SweepWorker, TheRunWritesItsResults) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 20\nfinalists = 2\nreplicates = 2\n");
    RunRequest request;
    request.out = folder_ / "out";
    request.lanes = 4;
    request.journal = (folder_ / "journal.log").string();
    int epochs = 0, epochs_without_a_page = 0;
    request.on_epoch = [&](const Progress& /*progress*/) {
        ++epochs;
        if (!std::filesystem::exists(folder_ / "out/sweep.html")) ++epochs_without_a_page;
    };
    const auto report = run_study(of, request, factory_);
    EXPECT_GT(epochs, 1);
    EXPECT_EQ(epochs_without_a_page, 1) << "the first epoch's page is written behind it";
    ASSERT_TRUE(report.ok()) << report.error().text();
    const auto best = load_study(file(std::string(kObjective), kSpace), {});
    ASSERT_TRUE(std::filesystem::exists(report->best_recipe));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/sweep.db"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/sweep.html"));
    EXPECT_TRUE(std::filesystem::exists(request.journal));
    std::ifstream in(report->best_recipe);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::string expected = recipe_of(of, report->finalists.front().configuration, 100).to_toml();
    EXPECT_NE(text.find(expected), std::string::npos) << text;
    const auto json = base::json_or_throw(report_json(of, *report));
    EXPECT_EQ(json["complete"], 20);
    EXPECT_EQ(json["finalists"].size(), 2u);
    EXPECT_EQ(json["finalists"][0]["test"]["test_loss"]["count"], 2);
    EXPECT_NEAR(json["importance"]["optim.lr"].get<double>() + json["importance"]["optim.weight_decay"].get<double>(), 1, 1e-9);
    const std::string words = report_text(of, *report);
    for (const char* word : {"20 complete", "bookkeeping", "importance", "millrace train", "best.toml", "test_loss"})
        EXPECT_NE(words.find(word), std::string::npos) << words;

    request.out = folder_ / "none";
    log_.most_lanes = 0;
    EXPECT_FALSE(run_study(of, request, factory_).ok());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "none")) << "nothing half-written";
}

}  // namespace
}  // namespace millrace::sweep
