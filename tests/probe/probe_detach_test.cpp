// CUPTI leaves the process after the early windows: calls that the program imports are counted all along.

#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>

#include "detachable_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::CuptiPresence;
using record::ProbeFault;
using record::ProbeMode;
using record::RecordKind;

class ProbeDetach : public DetachableProgram {};

TEST_F(ProbeDetach, CallsThatTheProgramImportsAreToldFromOthers) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kLaunch).size(), 15u);
    EXPECT_EQ(led(program.calls(CallKind::kLaunch)), 12u);
    EXPECT_EQ(program.calls(CallKind::kSetAsync).size(), 3u);
    EXPECT_EQ(led(program.calls(CallKind::kSetAsync)), 3u);
    EXPECT_EQ(program.header().state.pulses.load(), 3u) << "each once";
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, StepsAreCountedWithoutCupti) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(leave(program));
    program.drain();
    program.entries.clear();
    const std::string heard = program.ask("callbacks");
    const std::uint64_t counted = program.header().state.pulses.load();
    ASSERT_EQ(program.ask("framework 50 4"), "0");
    EXPECT_EQ(program.ask("callbacks"), heard);
    EXPECT_EQ(program.header().state.pulses.load() - counted, 50u);
    program.drain();
    const std::vector<Entry> pulses = program.of_kind(RecordKind::kPulse);
    ASSERT_EQ(pulses.size(), 50u);
    for (std::size_t i = 0; i < pulses.size(); ++i) EXPECT_EQ(pulses[i].record.bytes, counted + i + 1);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, ThereAreNoMoreWindowsOnceCuptiHasGone) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    EXPECT_EQ(presence(program), CuptiPresence::kThere);
    ASSERT_NO_FATAL_FAILURE(leave(program));
    EXPECT_EQ(presence(program), CuptiPresence::kGone);
    ASSERT_EQ(program.ask("graph"), "0");  // graphs do not mind
    const std::string heard = program.ask("callbacks");
    const std::uint64_t counted = program.header().state.pulses.load();
    program.drain();
    program.entries.clear();
    ASSERT_TRUE(order(program, ProbeMode::kFull, true, false)) << "it answers";
    EXPECT_EQ(program.header().state.mode.load(), 1u);
    EXPECT_EQ(program.header().state.fault.load(), 0u);
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    EXPECT_EQ(program.ask("callbacks"), heard);
    EXPECT_EQ(program.header().state.pulses.load() - counted, 3u);
    program.drain();
    EXPECT_TRUE(program.of_kind(RecordKind::kWindow).empty());
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, MemoryIsFollowedWithoutCupti) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(leave(program));
    program.drain();
    program.entries.clear();
    ASSERT_EQ(program.ask("take 5000"), "done");
    ASSERT_EQ(program.ask("take 1000"), "done");
    ASSERT_EQ(program.ask("give"), "0");
    program.drain();
    const std::vector<Entry> memory = program.of_kind(RecordKind::kMemory);
    ASSERT_EQ(memory.size(), 3u);
    EXPECT_EQ(memory[0].record.bytes, 5000u);
    EXPECT_EQ(memory[1].record.bytes, 1000u);
    EXPECT_EQ(memory[2].record.what, static_cast<std::uint8_t>(CallKind::kFree));
    EXPECT_EQ(memory[2].record.bytes, 1000u) << "its size is known";
    EXPECT_EQ(memory[2].record.extra, memory[1].record.extra);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, ProgramsOwnProfilerFindsCuptiFree) {
    ProbedProgram::Environment prompt = framework();
    prompt.erase("MOCK_CUPTI_LATE_MS");  // the profiler does not wait
    ProbedProgram program(drive(), prompt);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(leave(program));
    ASSERT_EQ(program.ask("profile"), "0");
    EXPECT_EQ(program.header().state.fault.load(), static_cast<std::uint32_t>(ProbeFault::kHandedOver));
    EXPECT_EQ(program.header().state.mode.load(), 0u);
    ASSERT_EQ(program.ask("launch 25"), "done");
    const std::string profiled = program.ask("profiled");
    EXPECT_EQ(profiled.substr(0, profiled.find(' ')), "25") << profiled;
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, NoMemoryIsMissedWhileCuptiGoes) {
    ProbedProgram::Environment slow = framework();
    slow["MOCK_CUPTI_FINALIZE_MS"] = "30";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    // Imports have to lead through the probe before the churning begins: what is not tracked is not seen.
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("churn"), "done");
    ASSERT_NO_FATAL_FAILURE(leave(program));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto rounds = std::stoul(program.ask("churned"));
    program.drain();
    std::size_t took = 0, gave = 0;
    for (const Entry& entry : program.of_kind(RecordKind::kMemory)) {
        took += entry.record.what == static_cast<std::uint8_t>(CallKind::kAlloc) && entry.record.bytes == 777 ? 1 : 0;
        gave += entry.record.what == static_cast<std::uint8_t>(CallKind::kFree) ? 1 : 0;
    }
    EXPECT_EQ(program.lost(), 0u);
    EXPECT_EQ(took, rounds);
    EXPECT_EQ(gave, rounds);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, CallsThatAreUnderWayWhenCuptiGoesFindItsMemoryAsItWas) {
    ProbedProgram::Environment slow = framework();
    slow["MOCK_CUDA_SYNC_MS"] = "1500";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("finalised"), "0");
    // Before the next request: nobody is told of its begin.
    ASSERT_TRUE(order(program, ProbeMode::kFull, true, false));
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, false));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    ASSERT_EQ(program.ask("synchronise_aside"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_TRUE(order(program, ProbeMode::kPulse, true, true));
    for (int tries = 0; tries < 50 && program.ask("finalised") != "1"; ++tries) {
        ASSERT_EQ(program.ask("framework 1 4"), "0");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_EQ(program.ask("finalised"), "1") << "while the other thread waits";
    for (int tries = 0; tries < 200; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        program.beat();
    }
    EXPECT_EQ(program.ask("spoiled"), "0 0");
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, ProfilerThatComesWhileCuptiIsFinalisedWaitsForThat) {
    ProbedProgram::Environment slow = framework();
    slow.erase("MOCK_CUPTI_LATE_MS");
    slow["MOCK_CUPTI_FINALIZE_MS"] = "400";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("take_aside"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ASSERT_EQ(presence(program), CuptiPresence::kThere);
    ASSERT_EQ(program.ask("profile"), "0");
    EXPECT_EQ(program.ask("finalised"), "1");
    ASSERT_EQ(program.ask("launch 25"), "done");
    const std::string profiled = program.ask("profiled");
    EXPECT_EQ(profiled.substr(0, profiled.find(' ')), "25") << profiled;
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, LibrariesThatAreBeingLoadedAreWaitedFor) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    const std::string library = (build_folder() / "libmock_library_slow.so").string();
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    ASSERT_EQ(program.ask("load_aside " + library), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("loaded " + library), "done");
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    ASSERT_EQ(program.ask("library_take"), "0");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    EXPECT_EQ(led(program.calls(CallKind::kAlloc)), 1u);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, FunctionsThatALibraryHasItselfAreItsOwn) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_EQ(program.ask("load " + (build_folder() / "libmock_library_own.so").string()), "done");
    ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
    EXPECT_EQ(program.ask("library_take"), "42");
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, ForkedChildrenAreNotCounted) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(leave(program));
    program.drain();
    program.entries.clear();
    const std::uint64_t counted = program.header().state.pulses.load();
    EXPECT_EQ(program.ask("fork_framework"), "7");
    EXPECT_EQ(program.header().state.pulses.load(), counted);
    program.drain();
    EXPECT_TRUE(program.entries.empty());
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, GoesUnderThreadsThatLaunch) {
    int gone = 0;
    for (int round = 0; round < 20 && gone < 3; ++round) {
        ProbedProgram program(drive(), framework());
        ASSERT_NO_FATAL_FAILURE(start(program));
        ASSERT_TRUE(order(program, ProbeMode::kFull, false, false));
        for (int threads = 0; threads < 3; ++threads) ASSERT_EQ(program.ask("daemon_framework"), "done");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        program.drain();
        if (!goes(program)) continue;
        ++gone;
        const std::string heard = program.ask("callbacks");
        const std::uint64_t counted = program.header().state.pulses.load();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_GT(program.header().state.pulses.load(), counted);
        EXPECT_EQ(program.ask("callbacks"), heard);
        program.drain();
        std::set<std::uint32_t> work, numbers, alone;
        for (const Entry& kernel : program.of_kind(RecordKind::kWork)) work.insert(kernel.record.correlation);
        for (const Entry& launch : program.calls(CallKind::kLaunch))
            EXPECT_TRUE(numbers.insert(launch.record.correlation).second);
        std::ranges::set_difference(numbers, work, std::inserter(alone, alone.end()));
        EXPECT_LE(alone.size(), 3u) << "but for those that a busy machine kept inside of a launch when the window ended";
        EXPECT_GT(numbers.size(), 100u);
        EXPECT_EQ(program.header().state.stale.load(), 0u);
        program.signal(SIGKILL);
    }
    EXPECT_EQ(gone, 3);
}

TEST_F(ProbeDetach, CallsOfTheProgramAreHeldWhileCuptiGoes) {
    ProbedProgram::Environment slow = framework();
    slow["MOCK_CUPTI_FINALIZE_MS"] = "5";
    int gone = 0;
    for (int round = 0; round < 20 && gone < 3; ++round) {
        ProbedProgram program(drive(), slow);
        ASSERT_NO_FATAL_FAILURE(start(program));
        ASSERT_TRUE(order(program, ProbeMode::kFull, true, false));
        for (int threads = 0; threads < 2; ++threads) ASSERT_EQ(program.ask("daemon_tracked"), "done");
        gone += goes(program) ? 1 : 0;
        EXPECT_EQ(program.ask("disturbed"), "0");
        EXPECT_EQ(program.ask("spoiled"), "0 0");
        program.signal(SIGKILL);
    }
    EXPECT_EQ(gone, 3);
}

TEST_F(ProbeDetach, NothingOfTheProgramIsChangedUnlessItIsLed) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    program.header().control.leads.store(0);
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("framework 3 4"), "0");
    EXPECT_EQ(program.ask("finalised"), "0");
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kLaunch).size(), 15u);
    EXPECT_EQ(led(program.calls(CallKind::kLaunch)), 0u);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeDetach, OtherThreadsGoOnWhereCuptiTakesLongToGo) {
    ProbedProgram::Environment slow = framework();
    slow["MOCK_CUPTI_FINALIZE_MS"] = "4500";
    ProbedProgram program(drive(), slow);
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(ask_to_leave(program));
    ASSERT_EQ(program.ask("take_aside"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ASSERT_EQ(program.ask("framework 20 4"), "0");
    EXPECT_EQ(presence(program), CuptiPresence::kThere) << "50 ms for each of 100 calls are longer than it takes to go";
    program.signal(SIGKILL);
}

TEST_F(ProbeDetach, RecordingSaysWhenCuptiLeft) {
    ProbedProgram program(drive(), framework());
    ASSERT_NO_FATAL_FAILURE(start(program));
    ASSERT_NO_FATAL_FAILURE(leave(program));
    for (int tries = 0; tries < 100 && program.of_kind(RecordKind::kLeft).empty(); ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        program.drain();
    }
    ASSERT_EQ(program.of_kind(RecordKind::kLeft).size(), 1u);
    const auto left = program.of_kind(RecordKind::kLeft)[0].record;
    EXPECT_GT(left.begin, program.of_kind(RecordKind::kWindow).back().record.begin);
    EXPECT_GT(left.end, left.begin) << "how long it took";
    EXPECT_EQ(program.finish(), 0);
}

}  // namespace
}  // namespace millrace::probe
