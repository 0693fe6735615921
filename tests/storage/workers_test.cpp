// Processes that share one database, and die in the middle of it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <thread>

#include "storage/made_up_study.h"

namespace millrace::storage {
namespace {

using search::TrialState;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Runs `body` in a process of its own; 0 when it returns true.
template <class Body>
pid_t start_process(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    return child;
}

int status_of(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

constexpr int64_t kTrials = 200;

/// Claims three trials at a time, reports and finishes them until there are none left. The value names the trial.
/// Writes a byte to `tell` before each call.
bool work(const std::string& place, const std::string& worker, const base::Clock& clock, milliseconds pause,
          seconds grace = seconds{60}, int tell = -1) {
    auto study = open_study(place, one_objective(), worker, clock);
    if (!study.ok()) return false;
    const auto announce = [&] { return tell < 0 || ::write(tell, "", 1) == 1; };
    for (;;) {
        if (!announce()) return false;
        const auto claimed = study->claim(3, grace);
        if (!claimed.ok()) return false;
        if (claimed->empty()) return true;
        std::vector<Report> reports;
        std::vector<Outcome> outcomes;
        for (const int64_t number : *claimed) {
            reports.push_back({number, 1, {static_cast<double>(number)}});
            outcomes.push_back({number, TrialState::complete, {static_cast<double>(number)}, {}, {{"by", worker}}});
        }
        if (!announce() || !study->report(reports).ok()) return false;
        std::this_thread::sleep_for(pause);
        if (!announce()) return false;
        const auto lost = study->finish(outcomes);
        if (!lost.ok() || !lost->empty()) return false;
    }
}

TEST_P(StudyTest, TwoProcessesShareTheTrialsAndNoneIsClaimedTwice) {
    std::vector<pid_t> children;
    for (const char* worker : {"a", "b"})
        children.push_back(start_process([&] {
            auto study = open_study(place_, one_objective(), worker, clock_);  // both create it at once
            return study.ok() && study->add(std::vector<NewTrial>(kTrials / 2, NewTrial{kInRange, true})).ok() &&
                   work(place_, worker, clock_, milliseconds{1});
        }));
    for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
    std::map<std::string, int64_t> share;
    const auto trials = must(open(one_objective()).trials());
    ASSERT_EQ(trials.size(), static_cast<size_t>(kTrials));
    for (const StoredTrial& stored : trials) {
        EXPECT_EQ(stored.trial.state, TrialState::complete);
        EXPECT_EQ(stored.trial.values, search::Objectives{static_cast<double>(stored.trial.number)});
        EXPECT_EQ(stored.attributes.at("by"), stored.worker) << "who finished it had claimed it last";
        ++share[stored.worker];
    }
    EXPECT_GT(share["a"], 0);
    EXPECT_GT(share["b"], 0);
}

TEST_P(StudyTest, TwentyKilledWorkersLoseNoTrialAndFinishNoneTwice) {
    must(open(one_objective()).add(std::vector<NewTrial>(kTrials, NewTrial{kInRange, true})));
    std::mt19937 random(7);
    for (int kill = 0; kill < 20; ++kill) {
        const std::string worker = "killed " + std::to_string(kill);
        int pipe[2];
        ASSERT_EQ(::pipe(pipe), 0);
        const pid_t child = start_process([&] { return work(place_, worker, clock_, milliseconds{2}, seconds{60}, pipe[1]); });
        ::close(pipe[1]);  // so that a worker that ends by itself ends the reading
        char told = 0;
        for (auto calls = 1 + random() % 9; calls > 0; --calls) EXPECT_EQ(::read(pipe[0], &told, 1), 1);
        std::this_thread::sleep_for(std::chrono::microseconds{random() % 1500});  // somewhere within that call
        ::kill(child, SIGKILL);
        status_of(child);
        ::close(pipe[0]);
        // Whatever was committed is whole.
        for (const StoredTrial& stored : must(open(one_objective()).trials())) {
            EXPECT_TRUE(!stored.is_waiting || stored.trial.reports.empty());
            EXPECT_EQ(stored.trial.state == TrialState::complete, !stored.trial.values.empty());
            EXPECT_EQ(stored.trial.state == TrialState::complete, stored.attributes.contains("by"));
        }
    }
    // A server's clock has gone on meanwhile, this one not.
    clock_.advance(seconds{1});
    EXPECT_TRUE(work(place_, "last", clock_, milliseconds{0}, seconds{0}));
    std::set<std::string> finished_by;
    const auto trials = must(open(one_objective()).trials());
    ASSERT_EQ(trials.size(), static_cast<size_t>(kTrials));
    for (const StoredTrial& stored : trials) {
        EXPECT_EQ(stored.trial.state, TrialState::complete) << stored.trial.number;
        EXPECT_EQ(stored.trial.values, search::Objectives{static_cast<double>(stored.trial.number)});
        finished_by.insert(stored.worker);
    }
    EXPECT_GT(finished_by.size(), 2U) << "the kills came before anything was done";
}

TEST_P(StudyTest, AProcessKilledInsideATransactionLeavesNothingOfIt) {
    must(open(one_objective()).add(std::vector<NewTrial>(2, NewTrial{kInRange, true})));
    const pid_t child = start_process([&] {
        auto database = open_database(place_);
        if (!database.ok() || !(*database)->begin().ok()) return false;
        if (!(*database)->run("UPDATE trials SET state = 'COMPLETE'").ok()) return false;
        if (!(*database)->run("DELETE FROM trial_params").ok()) return false;
        ::kill(::getpid(), SIGKILL);
        return false;
    });
    EXPECT_TRUE(WIFSIGNALED(status_of(child)));
    Study study = open(one_objective());
    EXPECT_EQ(must(study.claim(8, seconds{60})), (Numbers{0, 1}));
    EXPECT_EQ(must(study.trials())[1].trial.configuration, kInRange);
}

}  // namespace
}  // namespace millrace::storage
