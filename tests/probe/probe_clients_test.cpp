// CUPTI that is not there, refuses, or is wanted by somebody else.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "python_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeFault;
using record::ProbeMode;
using record::RecordKind;

class ProbeClients : public PythonProgram {};

TEST_F(ProbeClients, WithoutCuptiTheProgramRunsAndTheFaultIsNamed) {
    ProbedProgram program(drive(), {{"MILLRACE_CUPTI", "/nonexistent/libcupti.so"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    EXPECT_EQ(program.header().state.fault.load(), static_cast<std::uint32_t>(ProbeFault::kNoCupti));
    EXPECT_EQ(program.ask("step 2"), "done");
    EXPECT_EQ(exit_status(program.finish()), 0);
    EXPECT_EQ(program.errors, "");
    EXPECT_EQ(program.header().state.ended.load(), 1u);
}

TEST_F(ProbeClients, OtherClientIsNamedAndLeftAlone) {
    for (const char* cupti : {"libmock_cupti.so", "libmock_cupti_old.so"}) {
        const bool old = std::string(cupti).find("old") != std::string::npos;
        ProbedProgram program(drive(),
                              {{"MOCK_CUPTI_INCUMBENT", "Some Profiler"}, {"MILLRACE_CUPTI", (build_folder() / cupti).string()}});
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        EXPECT_EQ(program.header().state.fault.load(), static_cast<std::uint32_t>(ProbeFault::kOtherClient));
        EXPECT_STREQ(program.header().state.incumbent, old ? "" : "Some Profiler") << "older versions do not tell";
        EXPECT_EQ(program.ask("step 2"), "done");
        EXPECT_EQ(exit_status(program.finish()), 0);
    }
}

ProbedProgram::Environment with_profiler() {
    return {{"MOCK_PROFILER", (build_folder() / "libmock_profiler.so").string()}, {"MOCK_CUDA_SYNC_MS", "200"}};
}

/// The probe is off, for good.
void expect_made_way(ProbedProgram& program, const char* client) {
    const record::ProbeState& state = program.header().state;
    for (int tries = 0; tries < 500 && (state.fault.load() == 0 || state.mode.load() != 0); ++tries) {
        program.beat();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(state.fault.load(), static_cast<std::uint32_t>(ProbeFault::kHandedOver));
    EXPECT_STREQ(state.incumbent, client);
    EXPECT_EQ(state.mode.load(), 0u);
    program.header().control.mode.store(2);
    program.header().control.epoch.fetch_add(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    program.drain();
    program.entries.clear();
    EXPECT_EQ(program.ask("step 1"), "done");
    program.drain();
    EXPECT_TRUE(program.of_kind(RecordKind::kCall).empty());
    EXPECT_TRUE(program.of_kind(RecordKind::kMemory).empty());
}

TEST_F(ProbeClients, MakesWayForTheProgramsOwnProfiler) {
    for (const ProbeMode mode : {ProbeMode::kOff, ProbeMode::kPulse, ProbeMode::kFull}) {
        ProbedProgram program(drive(), with_profiler());
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        ASSERT_TRUE(program.command(mode, CallKind::kLaunch, 0, 3));
        ASSERT_EQ(program.ask("launch 30"), "done");
        ASSERT_EQ(program.ask("synchronise_aside"), "done") << "a call is under way when the probe leaves";
        ASSERT_EQ(program.ask("profile"), "0");
        ASSERT_EQ(program.ask("launch 25"), "done");
        EXPECT_EQ(program.ask("profiled"), "25 25 0") << "its own records, each with its number, in its own buffers";
        program.drain();
        EXPECT_EQ(program.calls(CallKind::kLaunch).size(), mode == ProbeMode::kFull ? 30u : 0u);
        EXPECT_EQ(program.of_kind(RecordKind::kWork).size(), mode == ProbeMode::kFull ? 30u : 0u);
        expect_made_way(program, "libmock_profiler.so");
        EXPECT_EQ(exit_status(program.finish()), 0);
        EXPECT_EQ(program.errors, "");
    }
}

TEST_F(ProbeClients, ProfilerThatIsLoadedAfterSomeWindowsIsSeenByTheNext) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    for (int window = 0; window < 6; ++window) {
        if (window == 5) {
            ASSERT_EQ(program.ask("load_profiler " + (build_folder() / "libmock_profiler.so").string()), "done");
        }
        ASSERT_TRUE(program.command(ProbeMode::kFull));
        ASSERT_EQ(program.ask("launch 3"), "done");
        ASSERT_TRUE(program.command(ProbeMode::kOff));
    }
    ASSERT_EQ(program.ask("profile"), "0");
    ASSERT_EQ(program.ask("launch 25"), "done");
    EXPECT_EQ(program.ask("profiled"), "25 25 0");
    expect_made_way(program, "libmock_profiler.so");
    EXPECT_EQ(exit_status(program.finish()), 0);
}

TEST_F(ProbeClients, LeavesWhenItsBuffersGoToSomebodyElse) {
    ProbedProgram program(drive(), with_profiler());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_EQ(program.ask("profile_unseen"), "0");
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 100"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    expect_made_way(program, "");
    EXPECT_EQ(exit_status(program.finish()), 0);
}

TEST_F(ProbeClients, RefusalsOfCuptiAreReported) {
    ProbedProgram program(drive(), {{"MOCK_CUPTI_FAIL", "subscribe=15"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    EXPECT_EQ(program.header().state.fault.load(), static_cast<std::uint32_t>(ProbeFault::kCuptiFailed));
    EXPECT_EQ(program.header().state.fault_code.load(), 15u);
    EXPECT_EQ(exit_status(program.finish()), 0);
}

}  // namespace
}  // namespace millrace::probe
