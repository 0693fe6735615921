#include "bench/bench.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>

#include "bench/peers.h"
#include "places.h"
#include "temporary_folder.h"

namespace millrace::bench {
namespace {

TEST(Bench, QuartilesAreOfTheSortedTimes) {
    const Timing timing = timing_of({5, 1, 3, 2, 4, 7, 6, 8});
    EXPECT_EQ(timing.low, 3);
    EXPECT_EQ(timing.median, 5);
    EXPECT_EQ(timing.high, 7);
    EXPECT_EQ(timing_of({2.5}).median, 2.5);
}

TEST(Bench, UnknownWorkloadNamesTheNearest) {
    const auto all = all_workloads(ops::DeviceKind::cpu);
    const auto refused = select_workloads(all, {"collective-debug-b33"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().text().find("did you mean collective-debug-b32"), std::string::npos) << refused.error().text();
    EXPECT_EQ(select_workloads(all, {"collective-phase1-b256"})->front().batch, 256);
}

TEST(Bench, WorkloadsOnRequestRunWhenNamedAlone) {
    const auto all = all_workloads(ops::DeviceKind::cpu);
    const auto tiny = select_workloads(all, {"energy_flow-tiny"});
    ASSERT_TRUE(tiny.ok());
    ASSERT_EQ(tiny->size(), 1u);
    EXPECT_TRUE(tiny->front().on_request);
    const auto usual = select_workloads(all, {});
    for (const Workload& workload : *usual) EXPECT_FALSE(workload.on_request) << workload.name;
    EXPECT_LT(usual->size(), all.size());
}

TEST(Bench, ManyMembersMeetJaxOnAGpu) {
    const auto all = all_workloads(ops::DeviceKind::cuda);
    for (const int members : {16, 64, 256}) {
        const auto row = select_workloads(all, {"collective-debug-b128-k" + std::to_string(members)});
        ASSERT_TRUE(row.ok()) << row.error().text();
        EXPECT_EQ(row->front().members, members);
        EXPECT_EQ(row->front().bar, 1.5);
        EXPECT_NE(row->front().peer_modes.find("jax"), std::string::npos);
    }
}

TEST(Bench, EnergyFlowHasItsBarsAndNothingSkippedInTheRowsThatHaveOne) {
    const std::map<std::string, double> bars{{"energy_flow-debug", 2},
                                             {"energy_flow-experiment", 1.5},
                                             {"energy_flow-experiment_v2", 1.5},
                                             {"energy_flow-large-b4", 1.2}};
    std::size_t found = 0;
    for (const Workload& workload : all_workloads(ops::DeviceKind::cuda)) {
        if (workload.model != "energy_flow" || !(workload.bar > 0)) continue;
        ASSERT_TRUE(bars.contains(workload.name)) << workload.name;
        EXPECT_EQ(workload.bar, bars.at(workload.name));
        EXPECT_EQ(workload.peer_modes, "compile+graph");
        for (const std::string& setting : workload.settings) {
            EXPECT_NE(setting, "model.early_stop=true");
            EXPECT_NE(setting, "model.skip_arrived=true");
        }
        ++found;
    }
    EXPECT_EQ(found, bars.size());
    EXPECT_EQ(select_workloads(all_workloads(ops::DeviceKind::cpu), {"energy_flow-debug"})->front().bar, 1.3);
}

TEST(Bench, FlowStepsAreCountedOnTheDevice) {
    Options options;
    options.seconds = 0.01;
    options.parts = true;
    options.settings = {
        "optim.lr=1e-9"};  // how many steps fit into the time is the machine's affair; what flows do must not depend on it
    const Workload tiny = select_workloads(all_workloads(ops::DeviceKind::cpu), {"energy_flow-tiny"})->front();
    const auto times = time_workload(tiny, options);
    ASSERT_TRUE(times.ok()) << times.error().text();
    EXPECT_GT(times->flops, 0);
    ASSERT_TRUE(times->work);
    EXPECT_EQ(times->work->all, 2 * 20 * 4);  // samples, cells, steps
    EXPECT_EQ(times->work->steps_used, 4);
    EXPECT_TRUE(times->work->all_computed);
    // A new model's flows take two strides of 1 / 1.9.
    EXPECT_NEAR(times->work->done / times->work->all, 0.5, 1e-9);
    EXPECT_FALSE(times->idle);  // a CPU replays nothing
    ASSERT_TRUE(times->parts);
    EXPECT_GT(times->parts->of(tape::Phase::backward), 0);
}

TEST(Bench, SettingsOfTheCommandLineBeatThoseOfTheWorkload) {
    Options options;
    options.seconds = 0.01;
    options.settings = {"model.early_stop=true", "model.arrive=0.5", "train.batch=3", "optim.lr=1e-9"};
    const Workload tiny = select_workloads(all_workloads(ops::DeviceKind::cpu), {"energy_flow-tiny"})->front();
    const auto times = time_workload(tiny, options);
    ASSERT_TRUE(times.ok()) << times.error().text();
    EXPECT_EQ(times->batch, 3);
    ASSERT_TRUE(times->work);
    EXPECT_EQ(times->work->all, 3 * 20 * 4);
    EXPECT_LT(times->work->steps_used, 4);
    EXPECT_FALSE(times->work->all_computed);
    options.settings = {"model.arive=0.5"};
    EXPECT_FALSE(time_workload(tiny, options).ok());
}

TEST(Bench, StepIsTimedInSevenWindows) {
    Options options;
    options.seconds = 0.01;
    const auto times = time_workload({"tiny", "shallow", "debug", 8, 1, false}, options);
    ASSERT_TRUE(times.ok()) << times.error().text();
    EXPECT_EQ(times->windows.size(), 7u);
    for (const double ms : times->windows) EXPECT_GT(ms, 0);
    EXPECT_EQ(times->precision, "f32");
}

TEST(Bench, StepsOnCudaKnowTheGapBetweenLaunchesFusedAndNot) {
    if (const base::Status usable = ops::cuda_available(); !usable.ok()) GTEST_SKIP() << usable.error().message;
    Options options;
    options.device = ops::DeviceKind::cuda;
    options.seconds = 0.01;
    options.settings = {"model.hidden=64", "train.batch=120"};  // rows enough for the joined kernels
    const Workload tiny = select_workloads(all_workloads(ops::DeviceKind::cuda), {"energy_flow-tiny"})->front();
    double flow_steps = 0;
    for (const bool fuse : {true, false}) {
        options.rewrites_off = fuse ? std::vector<std::string>{} : std::vector<std::string>{"all"};
        const auto times = time_workload(tiny, options);
        ASSERT_TRUE(times.ok()) << times.error().text();
        EXPECT_TRUE(times->replayed);
        EXPECT_EQ(times->precision, "bf16");
        ASSERT_TRUE(times->idle);
        EXPECT_GE(*times->idle, 0);
        EXPECT_LT(*times->idle, 1);
        ASSERT_TRUE(times->work);
        if (fuse) flow_steps = times->work->done;
        EXPECT_NEAR(times->work->done, flow_steps, 0.1 * flow_steps);
    }
}

TEST(Bench, RecipeSaysWhetherF32ProductsAreTf32) {
    Options options;
    options.seconds = 0.01;
    options.settings = {"train.f32=tf32"};
    const Workload tiny{"tiny", "shallow", "debug", 8, 1, true};
    const auto cpu = time_workload(tiny, options);
    ASSERT_TRUE(cpu.ok()) << cpu.error().text();
    EXPECT_EQ(cpu->precision, "f32");
    options.settings = {"train.f32=fast"};
    EXPECT_FALSE(time_workload(tiny, options).ok());
    if (!ops::cuda_available().ok()) return;
    options.device = ops::DeviceKind::cuda;
    options.settings = {"train.f32=tf32"};
    EXPECT_EQ(time_workload(tiny, options)->precision, "tf32");
    options.settings = {"train.f32=tf32", "deterministic=true"};
    EXPECT_EQ(time_workload(tiny, options)->precision, "f32");
}

/// What bench shows beside the first row of a CPU.
PeerTimes peers_of_first_row() {
    const auto command = peer_command(all_workloads(ops::DeviceKind::cpu).front(), {}, "f32");
    return command.ok() ? run_peers(*command) : PeerTimes{{}, command.error().text(), {}};
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
    EXPECT_TRUE(read_peer_row(R"({"peer": "jax", "ms": 0.5, "versions": {"jax": "0.4.30"}})", times));
    ASSERT_EQ(times.peers.size(), 4u);
    EXPECT_EQ(times.peers[0].ms, 12.5);
    EXPECT_EQ(times.peers[1].error, "needs cuda");
    EXPECT_FALSE(times.peers[2].error.empty());
    EXPECT_EQ(times.versions, "torch 1.13.1, openblas, 2 threads, jax 0.4.30");
}

TEST(Peers, ChildInheritsNoBlockedOrIgnoredSignals) {
    const test::TemporaryFolder folder;
    const std::string script = (folder / "python").string();
    std::ofstream(script) << "#!/bin/sh\nexec grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\n\\t'\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    setenv("MILLRACE_PYTHON", script.c_str(), 1);
    setenv("MILLRACE_PEERS", (testing::source_root() / "bench/peers").c_str(), 1);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&blocked, number);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const auto pipe_before = std::signal(SIGPIPE, SIG_IGN);
    const PeerTimes times = peers_of_first_row();
    std::signal(SIGPIPE, pipe_before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    unsetenv("MILLRACE_PYTHON");
    unsetenv("MILLRACE_PEERS");
    EXPECT_NE(times.reason.find("SigBlk:0000000000000000"), std::string::npos) << times.reason;
    const std::size_t at = times.reason.find("SigIgn:");
    ASSERT_NE(at, std::string::npos) << times.reason;
    EXPECT_EQ(std::stoull(times.reason.substr(at + 7), nullptr, 16) >> (SIGPIPE - 1) & 1, 0u) << times.reason;
}

TEST(Peers, AbsentInterpreterIsAReason) {
    setenv("MILLRACE_PYTHON", "/no/such/python", 1);
    setenv("MILLRACE_PEERS", (testing::source_root() / "bench/peers").c_str(), 1);
    const PeerTimes times = peers_of_first_row();
    EXPECT_TRUE(times.peers.empty());
    EXPECT_NE(times.reason.find("/no/such/python"), std::string::npos) << times.reason;
    setenv("MILLRACE_PEERS", "/no/such/folder", 1);
    EXPECT_NE(peers_of_first_row().reason.find("MILLRACE_PEERS"), std::string::npos);
    unsetenv("MILLRACE_PYTHON");
    unsetenv("MILLRACE_PEERS");
}

}  // namespace
}  // namespace millrace::bench
