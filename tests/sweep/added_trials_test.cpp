// Studies that are given more trials after their finalists were trained again.
#include <set>

#include "sweep/fake_lanes.h"

namespace millrace::sweep {
namespace {

using search::TrialState;

class LongerStudy : public Sweeps {
protected:
    /// The trials of the search of a study that ran to its end and was then given `more` trials.
    std::vector<search::Trial> searched(const std::string& lines, const std::string& database, int first, int more,
                                        const std::string& space = kSpace) {
        const auto trials = [&](int count) { return study(lines + "trials = " + std::to_string(count) + "\n", space); };
        auto with = options(8);
        with.database = (folder_ / database).string();
        run(trials(first), with);
        with.worker = "w2";
        const auto worker = run(trials(first + more), with);
        EXPECT_EQ(count(*worker, TrialState::running), 0);
        return worker->ledger().searched();
    }
};

class AddedTrials : public LongerStudy, public ::testing::WithParamInterface<std::string> {};

TEST_P(AddedTrials, AreJudgedAsIfNoFinalistHadBeenTrainedAgain) {
    const std::string lines =
        "sampler = \"random\"\nscheduler = \"" + GetParam() + "\"\npopulation = 8\nrungs = { last = 9 }\nreplicates = 3\n";
    const auto with = searched(lines + "finalists = 3\n", "with.db", 16, 14);
    const auto without = searched(lines + "finalists = 0\n", "without.db", 16, 14);
    ASSERT_EQ(with.size(), 30u);
    ASSERT_EQ(without.size(), 30u);
    EXPECT_GT(with.back().number, 30) << "reruns have numbers of the study";
    for (std::size_t i = 0; i < with.size(); ++i) {
        EXPECT_EQ(with[i].configuration, without[i].configuration) << i;
        EXPECT_EQ(with[i].state, without[i].state) << i;
        EXPECT_EQ(with[i].reports, without[i].reports) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, AddedTrials, ::testing::Values("none", "asha", "hyperband", "median", "pbt"));

TEST_F(LongerStudy, TakesUpTrialsThatPausedWhenItEnded) {
    const std::string lines = "sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\nfinalists = 1\n";
    const auto trials = [&](int count) { return study(lines + "trials = " + std::to_string(count) + "\n"); };
    const auto first = run(trials(16), options(8));
    EXPECT_GT(count(*first, TrialState::paused), 0);
    const auto stored = [&](Worker& worker) { return std::move(worker.ledger().stored()).value(); };
    const auto ended = stored(*first);
    for (const storage::StoredTrial& trial : ended) {
        EXPECT_TRUE(trial.has_ended) << trial.trial.number << ": nothing stays RUNNING in the database";
        if (trial.trial.state != TrialState::paused) continue;
        EXPECT_EQ(trial.trial.values, trial.trial.reports.rbegin()->second) << trial.trial.number;
    }
    const auto second = run(trials(60), options(8, "w2"));
    int taken_up = 0;
    const auto longer = stored(*second);
    for (std::size_t i = 0; i < ended.size(); ++i) {
        if (ended[i].trial.state != TrialState::paused || longer[i].trial.last_step() == ended[i].trial.last_step()) continue;
        ++taken_up;
        EXPECT_EQ(longer[i].trial.values, longer[i].trial.reports.rbegin()->second) << i;
    }
    EXPECT_GT(taken_up, 0);
    for (const storage::StoredTrial& trial : longer) EXPECT_TRUE(trial.has_ended) << trial.trial.number;
}

TEST_F(LongerStudy, GoesThroughTheRestOfAGrid) {
    std::set<search::Configuration> tried;
    for (const search::Trial& trial :
         searched("sampler = \"grid\"\ngrid_points = 3\nfinalists = 2\nreplicates = 1\n", "grid.db", 4, 2,
                  "\"train.batch\" = { choice = [32, 64] }\n\"optim.lr\" = { log = [1e-5, 1e-1] }\n"))
        tried.insert(trial.configuration);
    EXPECT_EQ(tried.size(), 6u);
}

}  // namespace
}  // namespace millrace::sweep
