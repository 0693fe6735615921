#include <signal.h>

#include <thread>

#include "comm/started.h"

namespace millrace::testing {
namespace {

class Ranks : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override {
        if (const std::string reason = no_mpi(); !reason.empty()) GTEST_SKIP() << reason;
    }
};

/// All ranks are gone within 10 s of the end of mpirun, which does not wait until they are reaped.
void expect_gone(const std::map<int, pid_t>& processes) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (const auto& [rank, process] : processes) {
        while (kill(process, 0) == 0 && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_NE(kill(process, 0), 0) << "rank " << rank << " still runs";
    }
}

TEST_P(Ranks, ExchangeAndSumInRankOrder) {
    Started ranks(GetParam(), "exchanges");
    EXPECT_EQ(ranks.wait(), 0) << ranks.text();
    EXPECT_EQ(count_of(ranks.text(), " is right"), static_cast<std::size_t>(GetParam())) << ranks.text();
}
INSTANTIATE_TEST_SUITE_P(Of, Ranks, ::testing::Values(1, 2, 3, 4));

class Failures : public Ranks {};

TEST_F(Failures, KilledRankEndsAll) {
    for (const int victim : {0, 1, 2}) {
        Started ranks(3, "endless 20000");
        const auto processes = ranks.processes(3);
        ASSERT_EQ(processes.size(), 3u) << ranks.text();
        kill(processes.at(victim), SIGKILL);
        EXPECT_EQ(ranks.wait(), 128 + SIGKILL) << ranks.text();
        EXPECT_NE(ranks.text().find("signal 9"), std::string::npos) << ranks.text();
        expect_gone(processes);
    }
}

TEST_F(Failures, StoppedRankIsReportedByTheOthers) {
    Started ranks(3, "endless 1000");
    const auto processes = ranks.processes(3);
    ASSERT_EQ(processes.size(), 3u) << ranks.text();
    kill(processes.at(1), SIGSTOP);
    EXPECT_EQ(ranks.wait(), 75) << ranks.text();
    EXPECT_NE(ranks.text().find("waited 1 s for the other ranks in step "), std::string::npos) << ranks.text();
    EXPECT_EQ(count_of(ranks.text(), "millrace: rank 1 of 3"), 0u) << ranks.text();
    expect_gone(processes);
}

TEST_F(Failures, AnnouncedWaitIsNoFailure) {
    Started ranks(2, "paused 500");
    EXPECT_EQ(ranks.wait(), 0) << ranks.text();
    EXPECT_EQ(count_of(ranks.text(), " is right"), 2u) << ranks.text();
}

TEST_F(Failures, RankThatLeavesWithAnErrorDoesNotWaitForTheOthers) {
    Started ranks(2, "leaving");
    EXPECT_EQ(ranks.wait(), 9) << ranks.text();
}

TEST_F(Failures, PluginThatIsNotThereIsNamed) {
    Started ranks(2, "exchanges", "MILLRACE_MPI=/nowhere/libmillrace-mpi.so");
    EXPECT_EQ(ranks.wait(), 2) << ranks.text();
    EXPECT_NE(ranks.text().find("/nowhere/libmillrace-mpi.so: cannot be loaded"), std::string::npos) << ranks.text();
    EXPECT_NE(ranks.text().find("libopenmpi-dev"), std::string::npos) << ranks.text();
}

TEST_F(Failures, OneRankNeedsNoPlugin) {
    Started ranks(1, "exchanges", "MILLRACE_MPI=/nowhere/libmillrace-mpi.so");
    EXPECT_EQ(ranks.wait(), 0) << ranks.text();
}

}  // namespace
}  // namespace millrace::testing
