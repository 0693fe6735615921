// Sweeps of a real model on the CPU.
#include "sweep/run.h"

#include "storage/database.h"
#include "sweep/programs.h"
#include "train/tiny_run.h"

namespace millrace::sweep {
namespace {

class RealSweep : public train::TinyRun {
protected:
    void SetUp() override {
        if (!storage::has_sqlite()) GTEST_SKIP() << "built without SQLite";
        TinyRun::SetUp();
    }
    StudyFile study(const std::string& lines) const {
        std::ofstream(folder_ / "recipe.toml")
            << "device = \"cpu\"\nthreads = 2\nseed = 11\n[model]\nname = \"collective\"\npreset = \"debug\"\n[data]\npath = \""
            << (folder_ / "data").string() << "\"\n[train]\nbatch = 128\n[eval]\nbatch = 40\n[optim]\nschedule = \"cosine\"\n";
        std::ofstream(folder_ / "study.toml")
            << "recipe = \"recipe.toml\"\n[study]\nobjectives = [{ metric = \"validation_loss\", direction = \"minimize\" }]\n"
            << lines
            << "\n[space]\n\"optim.lr\" = { log = [1e-4, 1e-2] }\n\"optim.weight_decay\" = { log = [1e-6, 1e-2], or = 0 }\n";
        auto loaded = load_study((folder_ / "study.toml").string(), {});
        EXPECT_TRUE(loaded.ok()) << loaded.error().text();
        return std::move(loaded).value();
    }
    /// The validation losses of the trial's epochs when `train` runs its recipe alone.
    std::vector<double> alone(const base::Recipe& recipe, const std::string& name) {
        observer_.epochs.clear();
        train::TrainRequest request;
        request.out = folder_ / name;
        request.command = {"test"};
        const auto result = train::train(recipe, request, {&observer_});
        EXPECT_TRUE(result.ok()) << result.error().text();
        std::vector<double> losses;
        for (const train::EpochReport& epoch : observer_.epochs) losses.push_back(epoch.validation.front().loss);
        return losses;
    }
};

TEST_F(RealSweep, PausedPromotedAndResumedTrialsEqualThoseTrainedAlone) {
    const StudyFile of = study(
        "sampler = \"random\"\nscheduler = \"asha\"\nrungs = { factor = 2, last = 4 }\ntrials = 7\nfinalists = 1\nreplicates = "
        "1\n");
    const auto lanes = training_lanes();
    RunRequest request;
    request.out = folder_ / "sweep";
    request.lanes = 3;
    std::atomic<int> stop{0};
    int epochs = 0;
    request.stop = &stop;
    request.on_epoch = [&](const Progress&) { stop = ++epochs == 4 ? 2 : 0; };
    const auto stopped = run_study(of, request, *lanes);
    ASSERT_TRUE(stopped.ok()) << stopped.error().text();
    ASSERT_TRUE(stopped->was_stopped);
    stop = 0;
    request.resume = true;
    const auto report = run_study(of, request, *lanes);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_FALSE(report->was_stopped);
    EXPECT_EQ(report->progress.started, 7);
    EXPECT_GT(report->progress.paused, 0);
    ASSERT_EQ(report->finalists.size(), 1u);

    auto ledger = Ledger::open((folder_ / "sweep/sweep.db").string(), of.description(), "test", base::SteadyClock::shared());
    ASSERT_TRUE(ledger.ok());
    int compared = 0;
    for (const std::int64_t number : {report->finalists.front().trials.front(), report->finalists.front().reruns.front()}) {
        const search::Trial& trial = ledger->trial(number);
        ASSERT_EQ(trial.reports.size(), 4u);
        const std::uint64_t seed = std::stoull(ledger->attribute(number, kSeedAttribute));
        EXPECT_EQ(seed, compared == 0 ? 11u : 12u);
        const auto losses = alone(recipe_of(of, trial.configuration, seed), "alone" + std::to_string(compared++));
        ASSERT_EQ(losses.size(), 4u);
        for (std::size_t epoch = 0; epoch < 4; ++epoch)
            EXPECT_EQ(trial.reports.at(static_cast<std::int64_t>(epoch) + 1).front(), losses[epoch]) << "epoch " << epoch + 1;
    }
    EXPECT_GT(report->finalists.front().test.at("test_accuracy").mean, 0);
    // The recipe that is left is that of the winner.
    const auto best = train::load_recipe(report->best_recipe, {});
    ASSERT_TRUE(best.ok()) << best.error().text();
    EXPECT_EQ(*best, recipe_of(of, report->finalists.front().configuration, 11));
}

TEST_F(RealSweep, MissingDataIsRefusedAndLeavesNothing) {
    StudyFile of = study("trials = 2\n");
    std::filesystem::remove_all(folder_ / "data");
    const auto lanes = training_lanes();
    RunRequest request;
    request.out = folder_ / "sweep";
    request.lanes = 2;
    const auto report = run_study(of, request, *lanes);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().exit_status, 2);
    EXPECT_NE(report.error().text().find("data"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "sweep"));
}

}  // namespace
}  // namespace millrace::sweep
