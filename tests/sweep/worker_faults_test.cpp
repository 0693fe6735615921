// What a worker does when devices, databases and other workers fail it.
#include <latch>

#include "storage/made_up_study.h"
#include "sweep/fake_lanes.h"

namespace millrace::sweep {
namespace {

using search::TrialState;
using SweepFaults = Sweeps;

constexpr const char* kBatches = "\"train.batch\" = { choice = [32, 64] }\n\"optim.lr\" = { log = [1e-4, 1e-2] }\n";

TEST_F(SweepFaults, ALostDeviceFailsNoTrial) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 12\nfinalists = 0\n", kBatches);
    log_.can_build = [&](const base::Recipe&) { return log_.epochs == 0; };
    auto worker = Worker::open(of, options(4), factory_, base::SteadyClock::shared());
    ASSERT_TRUE(worker.ok());
    const auto ran = (*worker)->run();
    ASSERT_FALSE(ran.ok());
    EXPECT_NE(ran.error().text().find("given back"), std::string::npos) << ran.error().text();
    EXPECT_NE(ran.error().text().find("the device does not answer"), std::string::npos) << ran.error().text();
    EXPECT_GT(count(**worker, TrialState::complete), 0);
    EXPECT_EQ(count(**worker, TrialState::failed), 0);
    const auto left = (*worker)->ledger().stored();
    for (const storage::StoredTrial& stored : left.value())
        EXPECT_TRUE(stored.is_waiting || stored.trial.state == TrialState::complete) << stored.trial.number;

    const auto again = (*Worker::open(of, options(4, "w2"), factory_, base::SteadyClock::shared()))->run();
    EXPECT_FALSE(again.ok()) << "nor does a worker that begins without a device";
    log_.can_build = nullptr;
    EXPECT_EQ(count(*run(of, options(4, "w3")), TrialState::complete), 12);
}

TEST_F(SweepFaults, StatesOfBeforeTheDeviceFailedAreGoneOnFrom) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 12\nfinalists = 0\n");
    log_.fails_at = 5;
    const SlowClock clock(log_);  // states are saved before every long epoch
    auto worker = Worker::open(of, options(4), factory_, clock);
    ASSERT_TRUE(worker.ok());
    const auto ran = (*worker)->run();
    ASSERT_FALSE(ran.ok());
    EXPECT_NE(ran.error().text().find("the device is gone"), std::string::npos) << ran.error().text();
    log_.fails_at = std::numeric_limits<int>::max();
    const auto again = run(of, options(4, "w2"), clock);
    EXPECT_EQ(count(*again, TrialState::complete), 12);
    EXPECT_EQ(log_.restores, 4);
    EXPECT_EQ(log_.fills, 12) << "none begins again";
    for (const int busy : log_.busy) EXPECT_EQ(busy, 4);
    EXPECT_EQ(log_.busy.size(), 27u) << "the four epochs before count";
}

/// Two structures, which a promoted trial may return to.
class PausedSweep : public Sweeps {
protected:
    std::unique_ptr<Worker> stopped_after(const StudyFile& of, int epoch, const std::string& name) {
        const int before = log_.epochs;
        std::atomic<int> stop{0};
        log_.stop = &stop;
        log_.stop_after = before + epoch;
        log_.stops_within = true;
        auto with = options(4, "first");
        with.database = (folder_ / (name + ".db")).string();
        with.slices = folder_ / name;
        with.stop = &stop;
        auto worker = run(of, with);
        log_.stop = nullptr;
        return worker;
    }
};

TEST_F(PausedSweep, AStopInTheFirstEpochAfterAPauseKeepsTheState) {
    const StudyFile of =
        study("sampler = \"random\"\nscheduler = \"asha\"\nrungs = { last = 9 }\ntrials = 27\nfinalists = 0\n", kBatches);
    std::vector<int> early;  // epochs that may be left at once: the first ones of a program
    std::vector<int> restores;
    log_.at_epoch = [&] { restores.push_back(log_.restores); };
    stopped_after(of, 1'000'000, "whole");
    for (const int epoch : log_.stoppable)
        if (restores[static_cast<std::size_t>(epoch - 1)] > 0) early.push_back(epoch);
    ASSERT_FALSE(early.empty());
    for (const int epoch : early) {
        const std::string name = "stopped" + std::to_string(epoch);
        const auto worker = stopped_after(of, epoch, name);
        ASSERT_TRUE(worker->was_stopped()) << epoch;
        for (const search::Trial& trial : worker->ledger().trials()) {
            const bool goes_on = trial.state == TrialState::running || trial.state == TrialState::paused;
            if (!goes_on || trial.reports.empty()) continue;
            EXPECT_TRUE(std::filesystem::exists(folder_ / name / (std::to_string(trial.number) + ".slice")))
                << "trial " << trial.number << " of epoch " << epoch;
        }
    }
}

TEST_F(SweepFaults, AStateThatCannotBeReplacedStays) {
    const StudyFile of = study("trials = 2\n");
    SliceStore slices(folder_ / "slices", 4, of.space);
    const History history{{0, {0.001, 0}}};
    ASSERT_TRUE(slices.put(7, {1, history, {{std::byte{1}, std::byte{2}}}}, "r").ok());
    write("slices", "a file where the folder would be made");
    const auto refused = slices.put(7, {2, history, {std::vector<std::byte>(9)}}, "r");
    EXPECT_FALSE(refused.ok()) << "too large for the memory";
    const auto kept = slices.get(7, "r");
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(kept->epoch, 1);
    EXPECT_EQ(slices.get(7, "r"), kept) << "until another one is saved";
    EXPECT_TRUE(slices.put(7, {2, history, {std::vector<std::byte>(4)}}, "r").ok()) << "in place of the one before";
    EXPECT_EQ(slices.get(7, "r")->epoch, 2);
    slices.drop(7);
    EXPECT_EQ(slices.get(7, "r"), nullptr);
}

TEST_F(SweepFaults, ATrialThatCannotBeBuiltFailsAlone) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 12\nfinalists = 0\n", kBatches);
    std::optional<std::int64_t> first;  // the first program of a study must be built
    log_.can_build = [&](const base::Recipe& recipe) {
        first = first.value_or(recipe.integer("train.batch"));
        return recipe.integer("train.batch") == *first;
    };
    const auto worker = run(of, options(4));
    const double built = *first == 32 ? 0 : 1;
    for (const search::Trial& trial : worker->ledger().searched())
        EXPECT_EQ(trial.state, trial.configuration[0] == built ? TrialState::complete : TrialState::failed) << trial.number;
    EXPECT_GT(count(*worker, TrialState::failed), 0);
}

TEST_F(SweepFaults, AHistoryOutsideTheSpaceIsRefused) {
    const StudyFile of = study("trials = 2\n");
    const auto opens = [&](const std::string& history) {
        const std::string database = (folder_ / ("history" + std::to_string(log_.fills++) + ".db")).string();
        auto stored = storage::must(storage::open_study(database, of.description(), "w1", base::SteadyClock::shared()));
        const std::vector<storage::NewTrial> trials = {{{0.001, 0}, true, {{kHistoryAttribute, history}}}};
        storage::must(stored.add(trials));
        return Ledger::open(database, of.description(), "w2", base::SteadyClock::shared()).ok();
    };
    EXPECT_TRUE(opens("[[0, [0.001, 0]], [3, [0.01, 0.001]]]"));
    for (const char* history : {"", "[]", "{}", "[[0, [0.001]]]", "[[0, [0.001, 0, 0]]]", "[[0, [0.5, 0]]]", "[[3, [0.001, 0]]]",
                                "[[0, [0.001, 0]], [0, [0.001, 0]]]", "[[0, [0.001, 0]], [3, [0.001, -1]]]"})
        EXPECT_FALSE(opens(history)) << history;
}

TEST_F(SweepFaults, ALostTrialHasTheConfigurationThatItsNewWorkerReads) {
    const StudyFile of = study("trials = 2\n");
    const std::string database = options(1).database;
    auto ledger = storage::must(Ledger::open(database, of.description(), "w1", base::SteadyClock::shared()));
    const std::vector<storage::NewTrial> trials = {{{0.001, 0}}};
    storage::must(ledger.add(trials));
    ledger.set_history(0, {{0, {0.001, 0}}, {1, {0.01, 0}}});
    EXPECT_EQ(ledger.trial(0).configuration, (search::Configuration{0.01, 0}));
    ASSERT_TRUE(ledger.refresh().ok());
    EXPECT_EQ(ledger.trial(0).configuration, (search::Configuration{0.01, 0})) << "the database does not know of it yet";
    auto other = storage::must(storage::open_study(database, of.description(), "w2", base::SteadyClock::shared()));
    ASSERT_EQ(storage::must(other.claim(1, std::chrono::milliseconds{-1000})).size(), 1u);
    ASSERT_TRUE(ledger.refresh().ok());
    EXPECT_EQ(ledger.trial(0).configuration, (search::Configuration{0.001, 0}));
}

TEST_F(SweepFaults, AHeartbeatKeepsATrialFromOtherWorkers) {
    const StudyFile of = study("trials = 2\n");
    const storage::HandClock early;
    storage::HandClock late;
    late.advance(std::chrono::seconds{100});
    const std::string place = options(1).database;
    auto mine = storage::must(storage::open_study(place, of.description(), "w1", early));
    const std::vector<storage::NewTrial> trials = {{{0.001, 0}}, {{0.01, 0}}};
    storage::must(mine.add(trials));
    std::latch is_due(1);
    {
        Heartbeat heartbeat(
            [&] {
                is_due.count_down();
                return storage::open_study(place, of.description(), "w1", late);
            },
            std::chrono::milliseconds{1});
        heartbeat.hold({1});
        is_due.wait();
    }  // its end waits for the beat
    auto other = storage::must(storage::open_study(place, of.description(), "w2", late));
    EXPECT_EQ(storage::must(other.claim(2, std::chrono::seconds{60})), std::vector<std::int64_t>{0});
}

TEST_F(SweepFaults, ATrialThatItClaimsFromItselfIsTrainedOnce) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 6\nfinalists = 0\n");
    auto with = options(4);
    with.grace = std::chrono::seconds{0};  // as if the server had been away: every heartbeat is too old
    auto other = storage::must(storage::open_study(with.database, of.description(), "w2", base::SteadyClock::shared()));
    log_.at_epoch = [&] {
        const std::vector<storage::NewTrial> late = {{{0.001, 0}, true}};
        if (log_.epochs == 11) storage::must(other.add(late));  // while two trials run and two lanes are empty
    };
    const SlowClock clock(log_);
    const auto worker = run(of, with, clock);
    EXPECT_EQ(count(*worker, TrialState::complete), 7);
    EXPECT_EQ(log_.fills, 7);
    EXPECT_EQ(std::ranges::max(log_.busy), 4);
    EXPECT_EQ(std::ranges::count(log_.busy, 3), 6) << "the late trial joins the two others for their last six epochs";
}

TEST_F(SweepFaults, TrialsItHasWithoutHavingBeenToldAreTrained) {
    const StudyFile of = study("sampler = \"random\"\ntrials = 6\nfinalists = 0\n");
    auto lost = storage::must(storage::open_study(options(4).database, of.description(), "w1", base::SteadyClock::shared()));
    const std::vector<storage::NewTrial> trials = {{{0.001, 0}}, {{0.01, 0}}};
    storage::must(lost.add(trials));  // the answer is lost with the connection
    const auto worker = run(of, options(4));
    EXPECT_EQ(count(*worker, TrialState::complete), 6);
    EXPECT_EQ(log_.fills, 6);
}

}  // namespace
}  // namespace millrace::sweep
