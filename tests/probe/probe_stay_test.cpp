// Where CUPTI stays in the process though it was asked to leave.

#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <thread>

#include "detachable_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::CuptiPresence;
using record::ProbeMode;

class ProbeStay : public DetachableProgram {};

TEST_F(ProbeStay, CuptiStaysWhereThereAreGraphs) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    ASSERT_EQ(program.ask("graph"), "0");
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
    for (int tries = 0; tries < 60; ++tries) {
        ASSERT_EQ(program.ask("framework 1 4"), "0");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(program.ask("finalised"), "0");
    EXPECT_EQ(program.header().state.pulses.load(), 63u);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeStay, GraphsThatComeBeforeItHasGoneKeepCupti) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("graph"), "0");
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    EXPECT_EQ(program.ask("finalised"), "0");
    ASSERT_NO_FATAL_FAILURE(expect_further_window(program));
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeStay, WhereCuptiCannotBeFinalisedItStays) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_EQ(program.ask("refuse finalize=7"), "done");
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    EXPECT_EQ(program.ask("finalised"), "0");
    ASSERT_NO_FATAL_FAILURE(expect_further_window(program));
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeStay, CuptiStaysWhereTheProgramCountsWithIt) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_EQ(program.ask("count"), "0") << "what it is given goes through, and so does the answer";
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
    EXPECT_EQ(presence(program), CuptiPresence::kStays);
    EXPECT_EQ(program.ask("finalised"), "0");
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kLaunch).size(), 15u) << "the probe stays beside it";
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeStay, CuptiThatHasLostCountOfCallsStays) {
    for (const bool stale : {false, true}) {
        ProbedProgram program(drive(), framework());
        ASSERT_NO_FATAL_FAILURE(start(program));
        record::ProbeState& state = program.header().state;
        (stale ? state.stale : state.unended).store(1);
        ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
        ASSERT_EQ(program.ask("framework 3 4"), "0");
        EXPECT_EQ(program.ask("finalised"), "0");
        EXPECT_EQ(presence(program), CuptiPresence::kStays);
        EXPECT_EQ(program.finish(), 0);
    }
}

TEST_F(ProbeStay, CuptiStaysWhileAnotherThreadThatUsesCudaRuns) {
    for (const bool uses_cuda : {true, false}) {
        ProbedProgram program(drive(), framework());
        ASSERT_NO_FATAL_FAILURE(start(program));
        ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
        ASSERT_EQ(program.ask(uses_cuda ? "spin_aside 1" : "spin_aside 0"), "done");
        ASSERT_EQ(program.ask("framework 3 4"), "0");
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // when it began is known by 10 ms
        ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
        ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
        EXPECT_EQ(presence(program), uses_cuda ? CuptiPresence::kStays : CuptiPresence::kGone);
        program.signal(SIGKILL);
    }
}

TEST_F(ProbeStay, CuptiStaysWhereNotEveryThreadIsKnown) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("crowd 40"), "done");
    ASSERT_EQ(program.ask("spin_aside 1"), "done");
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
    ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
    EXPECT_EQ(presence(program), CuptiPresence::kStays);
    program.signal(SIGKILL);
}

TEST_F(ProbeStay, CuptiStaysWhileAThreadRunsThatBeganAfterTheWindow) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, false));
    ASSERT_EQ(program.ask("spin_aside 1"), "done");
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
    ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
    EXPECT_EQ(presence(program), CuptiPresence::kStays);
    program.signal(SIGKILL);
}

TEST_F(ProbeStay, CuptiStaysWhereACallOfTheLastWindowLasts) {
    ProbedProgram::Environment slow = framework();
    slow["MOCK_CUDA_SYNC_MS"] = "60000";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("synchronise_aside"), "done");
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
    ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
    EXPECT_EQ(presence(program), CuptiPresence::kStays);
    program.signal(SIGKILL);
}

TEST_F(ProbeStay, ProfilerThatComesWhileCuptiCannotGoFindsItFree) {
    ProbedProgram::Environment slow = framework();
    slow.erase("MOCK_CUPTI_LATE_MS");
    slow["MOCK_CUDA_SYNC_MS"] = "4000";
    for (int round = 0; round < 4; ++round) {
        ProbedProgram program(drive(), slow);
        ASSERT_NO_FATAL_FAILURE(start(program));
        ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
        ASSERT_EQ(program.ask("wait_aside"), "done");
        for (int threads = 0; threads < 3; ++threads) ASSERT_EQ(program.ask("daemon_tracked"), "done");
        std::this_thread::sleep_for(std::chrono::milliseconds(40 + 7 * round));
        EXPECT_EQ(program.ask("profile"), "0") << "it has subscribed";
        program.signal(SIGKILL);
    }
}

TEST_F(ProbeStay, WhereNoMomentComesCuptiStays) {
    ProbedProgram::Environment slow = framework();
    slow.erase("MOCK_CUPTI_LATE_MS");
    slow["MOCK_CUDA_SYNC_MS"] = "4000";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("wait_aside"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_NO_FATAL_FAILURE(take_steps_until_decided(program));
    EXPECT_EQ(presence(program), CuptiPresence::kStays);
    EXPECT_EQ(program.ask("finalised"), "0");
    ASSERT_NO_FATAL_FAILURE(expect_further_window(program));
    program.signal(SIGKILL);
}

}  // namespace
}  // namespace millrace::probe
