// What is heard in windows and between them, and when they end.

#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <thread>

#include "python_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeMode;
using record::RecordKind;

class ProbeWindows : public PythonProgram {};

TEST_F(ProbeWindows, PlacesOfLaunchesAreTakenInTheFirstStepsAlone) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kStreamSync, 0, 2));
    ASSERT_EQ(program.ask("step 5"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> launches = program.calls(CallKind::kLaunch), waits = program.calls(CallKind::kStreamSync);
    ASSERT_EQ(launches.size(), 10u);
    for (std::size_t i = 0; i < launches.size(); ++i) EXPECT_EQ(launches[i].record.site != 0, i < 4) << i;
    ASSERT_EQ(waits.size(), 5u);
    for (const Entry& wait : waits) EXPECT_TRUE(program.has_site(wait.record.site));
    EXPECT_EQ(program.of_kind(RecordKind::kArguments).size(), 4u);
    EXPECT_EQ(program.header().state.pulses.load(), 5u);
}

/// What the probe hears of a hundred launches.
std::uint64_t callbacks_of_launches(ProbedProgram& program) {
    const std::uint64_t before = std::stoull(program.ask("callbacks"));
    EXPECT_EQ(program.ask("launch 100"), "done");
    return std::stoull(program.ask("callbacks")) - before;
}

TEST_F(ProbeWindows, CallsInsideOfCallsAreHeardInSampledStepsAlone) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kStreamSync, 0, 2));
    EXPECT_EQ(callbacks_of_launches(program), 400u) << "begin and end, of the runtime and of the driver";
    ASSERT_EQ(program.ask("step 2"), "done");
    std::uint64_t heard = 0;  // the probe's thread switches them off when it next looks
    for (int tries = 0; tries < 100 && heard != 200; ++tries) heard = callbacks_of_launches(program);
    EXPECT_EQ(heard, 200u);
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    EXPECT_EQ(callbacks_of_launches(program), 200u) << "nor by pulses";
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kStreamSync, 0, 2));
    EXPECT_EQ(callbacks_of_launches(program), 400u) << "the next window's sampled steps need arguments again";
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeWindows, CallsOfTheDriverThatTheProgramMakesItselfAreHeardAllAlong) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kStreamSync, 0, 2));
    ASSERT_EQ(program.ask("direct 20"), "done");
    ASSERT_EQ(program.ask("step 2"), "done");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_EQ(program.ask("direct 30"), "done");
    ASSERT_EQ(program.ask("launch 10"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    std::size_t direct = 0;
    for (const Entry& call : program.calls(CallKind::kLaunch)) direct += program.texts[call.record.id] == "cuLaunchKernel";
    EXPECT_EQ(direct, 50u);
    EXPECT_EQ(program.calls(CallKind::kLaunch).size(), 50u + 4 + 10);
    const std::vector<Entry> arguments = program.of_kind(RecordKind::kArguments);
    ASSERT_EQ(arguments.size(), 24u);
    ASSERT_EQ(arguments[0].arguments.size(), 5u) << "a structure of three words, one more parameter, and the hash";
    EXPECT_EQ(arguments[0].arguments[0].index, record::argument_index(0, 0, 8)) << "a pointer";
}

TEST_F(ProbeWindows, EndsByItselfAfterItsCallsAndPulsesGoOn) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kStreamSync, 3));
    ASSERT_EQ(program.ask("step 3"), "done");
    for (int tries = 0; tries < 5000 && program.header().state.mode.load() != 1; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_EQ(program.header().state.mode.load(), static_cast<std::uint32_t>(ProbeMode::kPulse));
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kStreamSync).size(), 3u);
    EXPECT_EQ(program.of_kind(RecordKind::kPulse).size(), 0u);
    program.entries.clear();
    ASSERT_EQ(program.ask("step 4"), "done");
    program.drain();
    const std::vector<Entry> pulses = program.of_kind(RecordKind::kPulse);
    ASSERT_EQ(pulses.size(), 4u);
    for (std::size_t i = 0; i < pulses.size(); ++i) {
        EXPECT_EQ(pulses[i].record.bytes, 4 + i);
        EXPECT_EQ(pulses[i].record.count, static_cast<std::uint16_t>(CallKind::kStreamSync));
    }
    EXPECT_EQ(program.of_kind(RecordKind::kCall).size(), 0u);
    EXPECT_EQ(program.of_kind(RecordKind::kMemory).size(), 8u) << "memory is followed all the time";
}

TEST_F(ProbeWindows, PulsesCountALaunchOnceThoughTheDriverIsInside) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    ASSERT_EQ(program.ask("launch 7"), "done");
    program.drain();
    EXPECT_EQ(program.of_kind(RecordKind::kPulse).size(), 7u);
    EXPECT_EQ(program.header().state.pulses.load(), 7u);
}

TEST_F(ProbeWindows, AllCallsAreCountedAndSomeTimed) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    program.header().control.pulse_stride.store(3);
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    ASSERT_EQ(program.ask("launch 11"), "done");
    program.drain();
    const std::vector<Entry> pulses = program.of_kind(RecordKind::kPulse);
    ASSERT_EQ(pulses.size(), 3u);
    for (std::size_t i = 0; i < pulses.size(); ++i) EXPECT_EQ(pulses[i].record.bytes, 3 * (i + 1));
    EXPECT_EQ(program.header().state.pulses.load(), 11u);
}

TEST_F(ProbeWindows, ProgramThatIsStoppedAfterAWindowLosesNoWork) {
    ProbedProgram program(drive(), {{"MOCK_CUPTI_LATE_MS", "700"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 100"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    program.signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    program.signal(SIGCONT);
    for (int tries = 0; tries < 100 && program.of_kind(RecordKind::kWork).size() < 100; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        program.beat();
        program.drain();
    }
    EXPECT_EQ(program.of_kind(RecordKind::kWork).size(), 100u);
    EXPECT_EQ(program.header().state.fault.load(), 0u);
    EXPECT_EQ(program.finish(), 0);
}

TEST_F(ProbeWindows, FullLanesLoseAndCount) {
    ProbedProgram program(drive(), {{"MILLRACE_PROBE_TRIAL", "no-activity"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 70000"), "done");
    const std::uint64_t lost = program.lost();
    EXPECT_GT(lost, 70'000u - record::kLaneSlots);
    program.drain();
    ASSERT_EQ(program.ask("launch 1"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> reports = program.of_kind(RecordKind::kLost);
    std::uint64_t reported = 0;
    for (const Entry& report : reports) reported += report.record.bytes;
    EXPECT_EQ(reported, program.lost());
    EXPECT_EQ(program.calls(CallKind::kLaunch).size() + lost, 70'001u);
}

}  // namespace
}  // namespace millrace::probe
