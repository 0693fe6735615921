// How a study ends: by its time, by its trials, and with a best trial in any case.

#include "sweep/fake_lanes.h"
#include "sweep/worker.h"

namespace millrace::sweep {
namespace {

using search::TrialState;
using SweepWorker = Sweeps;

TEST_F(SweepWorker, TheTimeLimitEndsTheSearchAndKeepsTheFinals) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 500\nrungs = { last = 3 }\nfinalists = 2\nreplicates = 1\n");
    auto with = options(4);
    with.time = std::chrono::hours{1};
    const SlowClock clock(log_);
    auto worker = Worker::open(of, with, factory_, clock);
    ASSERT_TRUE(worker.ok());
    ASSERT_TRUE((*worker)->run().ok());
    EXPECT_TRUE((*worker)->is_out_of_time());
    const auto finalists = finalist_results((*worker)->ledger(), of);
    ASSERT_EQ(finalists.size(), 2u);
    EXPECT_EQ(finalists[0].reruns.size(), 1u);
    EXPECT_EQ((*worker)->ledger().searched().size(), 8u);
}

TEST_F(SweepWorker, FinalsThatTrainWhenTheTimeIsUpAreTrainedToTheirEnd) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 4\nrungs = { last = 3 }\nfinalists = 2\nreplicates = 1\n");
    auto with = options(4);
    with.time = std::chrono::minutes{45};  // the search takes 30, the finals 30 more
    const SlowClock clock(log_);
    auto worker = Worker::open(of, with, factory_, clock);
    ASSERT_TRUE(worker.ok());
    ASSERT_TRUE((*worker)->run().ok());
    EXPECT_TRUE((*worker)->is_out_of_time());
    for (const auto& finalist : finalist_results((*worker)->ledger(), of)) EXPECT_EQ(finalist.reruns.size(), 1u);
    EXPECT_EQ(count(**worker, TrialState::complete), 6);
}

class FewTrials : public Sweeps {
protected:
    /// The one trial that is complete, of a study that would have none.
    search::Trial only_complete(const StudyFile& of, const Worker& worker, const Progress& progress) {
        const auto finalists = finalist_results(const_cast<Worker&>(worker).ledger(), of);
        if (finalists.size() != 1) {
            ADD_FAILURE() << finalists.size() << " finalists";
            return {};
        }
        EXPECT_EQ(finalists.front().reruns.size(), 1u);
        EXPECT_EQ(progress.finished, finalists.front().trials.front());
        EXPECT_EQ(progress.running, 0);
        return const_cast<Worker&>(worker).ledger().trial(finalists.front().trials.front());
    }
};

TEST_F(FewTrials, TheBestThatPausedTrainsToItsEnd) {
    for (const int trials : {1, 2, 3, 8}) {
        auto with = options(4);
        with.database = (folder_ / (std::to_string(trials) + ".db")).string();
        with.slices = folder_ / std::to_string(trials);
        const StudyFile of = study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\nfinalists = 5\n" +
                                   ("replicates = 1\ntrials = " + std::to_string(trials)) + "\n");
        const auto worker = run(of, with);
        const search::Trial best = only_complete(of, *worker, worker->progress());
        ASSERT_EQ(best.last_step(), 9);
        const std::int64_t rung = trials >= 3 ? 3 : 1;  // the last that any reached by itself
        for (const search::Trial& other : worker->ledger().searched())
            if (other.reports.contains(rung)) {
                EXPECT_LE(best.reports.at(rung).front(), other.reports.at(rung).front()) << other.number << " of " << trials;
            }
        for (const auto& [epoch, value] : alone(of, best, 100, 9)) EXPECT_EQ(best.reports.at(epoch).front(), value);
    }
}

TEST_F(FewTrials, WhereNoneKeepsTheConstraintsNoneTrainsToItsEnd) {
    auto loaded = load_study(
        file(std::string(kObjective) + "constraints = [{ metric = \"validation_loss\", at_most = 0 }]\nsampler = \"random\"\n"
                                       "scheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 4\n"),
        {});
    ASSERT_TRUE(loaded.ok());
    const auto worker = run(*loaded, options(4));
    EXPECT_EQ(count(*worker, TrialState::complete), 0) << "none may win, so none is worth its length";
    EXPECT_FALSE(worker->progress().finished);
}

TEST_F(FewTrials, TheBestOfThoseThatTheTimeCutOffTrainsBeyondIt) {
    for (const std::string scheduler : {"none", "asha", "median", "pbt"}) {
        log_.epochs = 0;
        auto with = options(scheduler == "pbt" ? 0 : 4);
        with.database = (folder_ / (scheduler + ".db")).string();
        with.slices = folder_ / scheduler;
        with.time = std::chrono::minutes{15};  // two epochs, of nine
        const SlowClock clock(log_);
        const StudyFile of = study("sampler = \"random\"\nscheduler = \"" + scheduler +
                                   "\"\nrungs = { last = 9 }\npopulation = 4\nreplicates = 1\nfinalists = 2\n");
        const auto worker = run(of, with, clock);
        EXPECT_TRUE(worker->is_out_of_time()) << scheduler;
        const auto finalists = finalist_results(worker->ledger(), of);
        ASSERT_EQ(finalists.size(), 1u) << scheduler;
        EXPECT_EQ(worker->progress().finished, finalists.front().trials.front()) << scheduler;
        EXPECT_EQ(worker->ledger().trial(finalists.front().trials.front()).last_step(), 9) << scheduler;
    }
}

}  // namespace
}  // namespace millrace::sweep
