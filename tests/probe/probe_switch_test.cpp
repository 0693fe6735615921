// Calls that go on and off under threads: CUPTI misses no end of a call that it has seen begin.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "python_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeMode;
using record::RecordKind;

class ProbeSwitch : public PythonProgram {};

/// Each launch has its kernel: no number twice, none without the other.
void expect_joined(const ProbedProgram& program, std::size_t least) {
    std::set<std::uint32_t> calls, work;
    for (const Entry& call : program.calls(CallKind::kLaunch)) EXPECT_TRUE(calls.insert(call.record.correlation).second);
    for (const Entry& kernel : program.of_kind(RecordKind::kWork)) EXPECT_TRUE(work.insert(kernel.record.correlation).second);
    EXPECT_GE(calls.size(), least);
    std::size_t joined = 0;
    for (const std::uint32_t number : calls) joined += work.count(number);
    EXPECT_GE(joined + 1, calls.size()) << "at the edge of a window one may be alone";
}

TEST_F(ProbeSwitch, WindowThatEndsUnderAWaitLeavesTheNextOneInOrder) {
    for (const ProbeMode between : {ProbeMode::kOff, ProbeMode::kPulse}) {
        ProbedProgram program(drive(), {{"MOCK_CUDA_SYNC_MS", "300"}});
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1));
        ASSERT_EQ(program.ask("launch 5"), "done");
        program.say("synchronise");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ASSERT_TRUE(program.command(between, CallKind::kEventRecord));
        ASSERT_EQ(program.hear(), "done");
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ASSERT_TRUE(program.command(ProbeMode::kFull));
        ASSERT_EQ(program.ask("launch 20"), "done");
        ASSERT_TRUE(program.command(ProbeMode::kOff));
        program.wait_for_work(25);
        expect_joined(program, 25);
        const std::vector<Entry> waits = program.calls(CallKind::kStreamSync);
        ASSERT_EQ(waits.size(), 1u) << "what began in a window is told to its end";
        EXPECT_GE(waits[0].record.end - waits[0].record.begin, 250'000'000u);
        EXPECT_EQ(program.header().state.unended.load(), 0u);
        EXPECT_EQ(program.header().state.stale.load(), 0u);
        const std::uint64_t before = std::stoull(program.ask("callbacks"));
        ASSERT_EQ(program.ask("synchronise"), "done");
        EXPECT_EQ(std::stoull(program.ask("callbacks")), before) << "in the end it was switched off";
    }
}

TEST_F(ProbeSwitch, WindowsThatComeAndGoUnderLaunchesKeepCallsAndWorkJoined) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_EQ(program.ask("daemon"), "done");
    // On a busy machine a window may pass in which the program does not run.
    for (int round = 0; round < 20 || (round < 2000 && program.calls(CallKind::kLaunch).size() < 1000); ++round) {
        ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 50));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ASSERT_TRUE(program.command(round % 2 == 0 ? ProbeMode::kOff : ProbeMode::kPulse, CallKind::kStreamSync));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        program.drain();
    }
    EXPECT_EQ(program.header().state.stale.load(), 0u);
    std::set<std::uint32_t> numbers;
    for (const Entry& call : program.calls(CallKind::kLaunch)) EXPECT_TRUE(numbers.insert(call.record.correlation).second);
    EXPECT_GE(numbers.size(), 1000u);
}

/// Launches that no kernel belongs to.
std::size_t launches_alone(const ProbedProgram& program) {
    std::set<std::uint32_t> work;
    for (const Entry& kernel : program.of_kind(RecordKind::kWork)) work.insert(kernel.record.correlation);
    const std::vector<Entry> launches = program.calls(CallKind::kLaunch);
    return static_cast<std::size_t>(
        std::ranges::count_if(launches, [&work](const Entry& launch) { return !work.contains(launch.record.correlation); }));
}

TEST_F(ProbeSwitch, RecordsGoOnAndOffWhileNobodyLaunchesAndNoLaunchOfAWindowLacksItsWork) {
    for (int attempt = 0; attempt < 5; ++attempt) {
        ProbedProgram program(drive());
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        // Launches are heard of all the time: those of which nobody was told cannot be waited for.
        ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
        for (int threads = 0; threads < 2; ++threads) ASSERT_EQ(program.ask("daemon"), "done");
        for (int round = 0; round < 20; ++round) {
            ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kLaunch, 0, 50));
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            program.drain();
        }
        EXPECT_EQ(program.ask("switched_inside"), "0");
        ASSERT_TRUE(program.command(ProbeMode::kOff)) << "or launches fill the buffers while those of the windows are counted";
        for (int tries = 0; tries < 40 && launches_alone(program) > 0; ++tries) {  // the last ones' work comes with a flush
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            program.beat();
            program.drain();
        }
        if (program.lost() > 0) continue;  // a busy machine: this reader was too late, and a lost record says nothing
        EXPECT_GT(program.calls(CallKind::kLaunch).size(), 1000u);
        EXPECT_EQ(launches_alone(program), 0u) << "of " << program.calls(CallKind::kLaunch).size();
        return;
    }
    FAIL() << "records were lost in every attempt";
}

TEST_F(ProbeSwitch, CallsThatBeganBeforeAnybodyWasToldOfThemAreWaitedFor) {
    ProbedProgram program(drive(), {{"MOCK_CUDA_COPY_MS", "3"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kLaunch, 0, 50));
    ASSERT_EQ(program.ask("daemon_copies"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int round = 0; round < 16; ++round) {
        ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));  // nobody is told of copies
        std::this_thread::sleep_for(std::chrono::milliseconds(40 + round));
        ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kLaunch, 0, 50));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        program.drain();
    }
    EXPECT_EQ(program.ask("switched_inside"), "0");
    EXPECT_EQ(program.header().state.unended.load(), 0u);
    EXPECT_EQ(program.header().state.stale.load(), 0u);
    program.signal(SIGKILL);
}

TEST_F(ProbeSwitch, ThreadThatStaysInsideOfACopyHoldsUpNeitherTheSwitchNorOthers) {
    ProbedProgram program(drive(), {{"MOCK_CUDA_COPY_MS", "3000"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kLaunch, 0, 1));
    ASSERT_EQ(program.ask("copy_aside"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    program.say("launch 1000");
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    ASSERT_EQ(program.hear(), "done");
    EXPECT_EQ(program.ask("copying"), "1") << "it went off, and all was launched, before the copy was over";
    EXPECT_NE(program.ask("switched_inside"), "0") << "under the copy, after some patience";
    EXPECT_EQ(program.finish(), 0);
}

/// Lets the program launch until nothing of it is heard any more; false when that does not come.
bool goes_quiet(ProbedProgram& program) {
    for (int tries = 0; tries < 200; ++tries) {
        const std::string before = program.ask("callbacks");
        if (program.ask("launch 1") != "done" || program.ask("synchronise") != "done") return false;
        if (program.ask("callbacks") == before) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

TEST_F(ProbeSwitch, ThreadOnItsWayIntoACallThatGoesOffIsToldOfItsEnd) {
    for (const ProbeMode between : {ProbeMode::kOff, ProbeMode::kPulse}) {
        ProbedProgram program(drive());
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        for (int round = 0; round < 3; ++round) {
            ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1));
            ASSERT_EQ(program.ask("delay 150"), "done");
            program.say("synchronise");
            std::this_thread::sleep_for(std::chrono::milliseconds(40));
            ASSERT_TRUE(program.command(between, CallKind::kEventRecord)) << "nobody is inside of the call yet";
            ASSERT_EQ(program.hear(), "done");
            ASSERT_EQ(program.ask("delay 0"), "done");
            EXPECT_EQ(program.ask("missed"), "0") << round;
            EXPECT_TRUE(goes_quiet(program)) << round;
        }
        ASSERT_TRUE(program.command(ProbeMode::kFull));
        ASSERT_EQ(program.ask("launch 20"), "done");
        ASSERT_TRUE(program.command(ProbeMode::kOff));
        EXPECT_EQ(program.header().state.stale.load(), 0u);
        EXPECT_EQ(program.header().state.unended.load(), 0u);
        EXPECT_EQ(program.finish(), 0);
    }
}

TEST_F(ProbeSwitch, CallsOfThreadsBeyondTheLanesAreToldToTheirEnds) {
    ProbedProgram program(drive(), {{"MOCK_CUDA_SYNC_MS", "300"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1));
    ASSERT_EQ(program.ask("crowd 40"), "done");
    ASSERT_GT(program.lost(), 0u) << "all lanes have owners";
    for (const char* delay : {"delay 0", "delay 150"}) {  // inside of the call, and on the way into it
        ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1));
        ASSERT_EQ(program.ask(delay), "done");
        ASSERT_EQ(program.ask("synchronise_aside"), "done");
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        ASSERT_TRUE(program.command(ProbeMode::kOff));
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
        program.beat();
        ASSERT_EQ(program.ask("delay 0"), "done");
        EXPECT_EQ(program.ask("missed"), "0") << delay;
        EXPECT_TRUE(goes_quiet(program)) << delay;
    }
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeSwitch, CallsThatCuptiRefusesToSwitchOffAreNotWaitedFor) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1));
    ASSERT_EQ(program.ask("launch 5"), "done");
    ASSERT_EQ(program.ask("refuse enable_callback=999"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    ASSERT_EQ(program.ask("launch 2000"), "done") << "not in time, with 200 ms for each of them";
    EXPECT_EQ(program.finish(), 0);
}

}  // namespace
}  // namespace millrace::probe
