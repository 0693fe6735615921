#include "train/bench.h"

#include <gtest/gtest.h>

#include "places.h"
#include "train/peers.h"

namespace millrace::train {
namespace {

TEST(Bench, QuartilesAreOfTheSortedTimes) {
    const Timing timing = timing_of({5, 1, 3, 2, 4, 7, 6, 8});
    EXPECT_EQ(timing.low, 3);
    EXPECT_EQ(timing.median, 5);
    EXPECT_EQ(timing.high, 7);
    EXPECT_EQ(timing_of({2.5}).median, 2.5);
}

TEST(Bench, UnknownWorkloadNamesTheNearest) {
    const auto all = bench_workloads(ops::DeviceKind::cpu);
    const auto refused = select_workloads(all, {"collective-debug-b33"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("did you mean collective-debug-b32"), std::string::npos) << refused.error().text();
    EXPECT_EQ(select_workloads(all, {})->size(), all.size());
    EXPECT_EQ(select_workloads(all, {"collective-phase1-b256"})->front().batch, 256);
    EXPECT_EQ(bench_workloads(ops::DeviceKind::cuda).size(), 2 * all.size());
}

TEST(Bench, StepIsTimedInSevenWindows) {
    BenchOptions options;
    options.seconds = 0.01;
    const auto times = time_workload({"tiny", "shallow", "debug", 8, 1, false}, options);
    ASSERT_TRUE(times.ok()) << times.error().text();
    EXPECT_EQ(times->windows.size(), 7u);
    for (const double ms : times->windows) EXPECT_GT(ms, 0);
    EXPECT_EQ(times->precision, "f32");
}

TEST(Peers, RowsAreReadAndNoiseIsNot) {
    PeerTimes times;
    EXPECT_FALSE(read_peer_row("UserWarning: something", times));
    EXPECT_FALSE(read_peer_row("{\"name\": 3}", times));
    EXPECT_FALSE(read_peer_row("{\"peer\": ", times));
    EXPECT_TRUE(read_peer_row(
        R"({"peer": "eager", "ms": 12.5, "low": 12, "high": 13, "versions": {"torch": "1.13.1", "blas": "openblas", "threads": 2}})",
        times));
    EXPECT_TRUE(read_peer_row(R"({"peer": "graph", "error": "needs cuda"})", times));
    EXPECT_TRUE(read_peer_row(R"({"peer": "odd", "ms": null})", times));
    ASSERT_EQ(times.peers.size(), 3u);
    EXPECT_EQ(times.peers[0].ms, 12.5);
    EXPECT_EQ(times.peers[1].error, "needs cuda");
    EXPECT_FALSE(times.peers[2].error.empty());
    EXPECT_EQ(times.versions, "torch 1.13.1, openblas, 2 threads");
}

TEST(Peers, AbsentInterpreterIsAReason) {
    setenv("MILLRACE_PYTHON", "/no/such/python", 1);
    setenv("MILLRACE_PEERS", (testing::source_root() / "bench/peers").c_str(), 1);
    const PeerTimes times = time_peers(bench_workloads(ops::DeviceKind::cpu).front(), {}, "f32");
    EXPECT_TRUE(times.peers.empty());
    EXPECT_NE(times.reason.find("/no/such/python"), std::string::npos) << times.reason;
    setenv("MILLRACE_PEERS", "/no/such/folder", 1);
    EXPECT_NE(time_peers(bench_workloads(ops::DeviceKind::cpu).front(), {}, "f32").reason.find("MILLRACE_PEERS"),
              std::string::npos);
    unsetenv("MILLRACE_PYTHON");
    unsetenv("MILLRACE_PEERS");
}

}  // namespace
}  // namespace millrace::train
