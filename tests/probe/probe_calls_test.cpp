// What calls, device work and ranges of a program become in a window.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "places.h"
#include "python_program.h"
#include "record/probe_records.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::MemoryKind;
using record::ProbeMode;
using record::RecordKind;
using record::WorkKind;

std::string script() { return (testing::source_root() / "tests/probe/drive.py").string(); }

/// Line of the script that ends in a mark.
std::uint32_t line_of(const std::string& mark) {
    std::ifstream file(script());
    std::uint32_t number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        const std::string end = "# " + mark;
        if (line.size() > end.size() && line.compare(line.size() - end.size(), end.size(), end) == 0) return number;
    }
    ADD_FAILURE() << "no line is marked " << mark;
    return 0;
}

class ProbeCalls : public PythonProgram {};
class ProbeVersions : public PythonProgram, public ::testing::WithParamInterface<const char*> {};

TEST_P(ProbeVersions, WindowHasCallsWorkAndPlaces) {
    ProbedProgram program(drive(), {{"MILLRACE_CUPTI", (build_folder() / GetParam()).string()}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    EXPECT_EQ(program.header().state.fault.load(), 0u);
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kEventRecord, 0, 1000));
    ASSERT_EQ(program.ask("step 3"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.wait_for_work(3 * 6);

    // Six kinds of calls once in a step and launches twice, none of them counted again inside the driver.
    EXPECT_EQ(program.of_kind(RecordKind::kCall).size(), 3u * 9);
    ASSERT_EQ(program.calls(CallKind::kLaunch).size(), 6u);
    const std::uint32_t at = line_of("launch"), forward = line_of("from forward");
    const std::vector<Frame> launched = program.site(program.calls(CallKind::kLaunch)[0].record.site);
    ASSERT_GE(launched.size(), 4u);
    EXPECT_EQ(launched[0], (Frame{script(), "launch", at, false}));
    EXPECT_EQ(launched[1], (Frame{script(), "forward", forward, false}));
    EXPECT_EQ(launched[2].function, "step");
    EXPECT_EQ(launched.back().function, "<module>");
    const std::vector<Frame> second = program.site(program.calls(CallKind::kLaunch)[1].record.site);
    const auto step = std::find_if(second.begin(), second.end(), [](const Frame& frame) { return frame.function == "step"; });
    ASSERT_NE(step, second.end());
    EXPECT_EQ(step->line, line_of("from a comprehension"));
    const auto first_frame = [&](CallKind kind) { return program.site(program.calls(kind).at(0).record.site).at(0); };
    EXPECT_EQ(first_frame(CallKind::kStreamSync), (Frame{script(), "read_loss", line_of("synchronise"), false}));
    EXPECT_EQ(first_frame(CallKind::kCopyAsync).line, line_of("upload"));
    EXPECT_EQ(first_frame(CallKind::kAlloc).line, line_of("allocate"));
    EXPECT_EQ(first_frame(CallKind::kFree).line, line_of("allocate") + 1);

    for (const Entry& call : program.of_kind(RecordKind::kCall)) {
        EXPECT_LE(call.record.begin, call.record.end);
        EXPECT_NE(call.record.thread, 0u);
        EXPECT_EQ(call.record.thread, program.calls(CallKind::kLaunch)[0].record.thread);
    }
    EXPECT_EQ(program.texts[program.calls(CallKind::kLaunch)[0].record.id], "cudaLaunchKernel");
    EXPECT_EQ(program.texts[program.calls(CallKind::kStreamSync)[0].record.id], "cudaStreamSynchronize");
    EXPECT_EQ(program.calls(CallKind::kCopyAsync)[0].record.bytes, 100'001u);
    EXPECT_EQ(program.calls(CallKind::kEventRecord)[0].record.extra, 0xe0u);
    EXPECT_EQ(program.calls(CallKind::kStreamSync)[0].record.stream, 7u);

    // Every launch has its kernel, with the same grid and at about the same time.
    std::size_t kernels = 0;
    for (const Entry& entry : program.of_kind(RecordKind::kWork)) {
        const record::Record& work = entry.record;
        if (work.what != static_cast<std::uint8_t>(WorkKind::kKernel) || (work.flags & record::kInGraph) != 0) continue;
        ++kernels;
        EXPECT_EQ(program.texts[work.id], "_Z5scalePff");
        const std::vector<Entry> launches = program.calls(CallKind::kLaunch);
        const auto launch = std::find_if(launches.begin(), launches.end(),
                                         [&](const Entry& call) { return call.record.correlation == work.correlation; });
        ASSERT_NE(launch, launches.end());
        EXPECT_EQ(launch->record.grid, work.grid);
        EXPECT_NE(work.grid, 0u);
        const record::LaunchSize size = record::unpacked(work.bytes);
        EXPECT_EQ(std::tuple(size.registers, size.shared_bytes), std::tuple(40u, 1536u));
        EXPECT_TRUE(size.blocks > 0 && size.threads > 0) << size.blocks << " blocks of " << size.threads;
        EXPECT_EQ(work.end - work.begin, 5000u);
        EXPECT_LT(std::llabs(static_cast<long long>(work.begin - launch->record.begin)), 1'000'000);
    }
    EXPECT_EQ(kernels, 6u);
    const std::vector<Entry> windows = program.of_kind(RecordKind::kWindow);
    ASSERT_EQ(windows.size(), 2u);
    EXPECT_EQ(windows[0].record.flags, record::kWindowBegins);
    EXPECT_EQ(windows[1].record.flags, 0);
    EXPECT_EQ(program.lost(), 0u);
    EXPECT_EQ(program.header().state.calls.load(), 27u);
    EXPECT_EQ(program.finish(), 0);
    EXPECT_EQ(program.errors, "");
    EXPECT_EQ(program.header().state.ended.load(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Versions, ProbeVersions, ::testing::Values("libmock_cupti.so", "libmock_cupti_old.so"),
                         [](const auto& given) {
                             return std::string(given.param).find("old") == std::string::npos ? "Cupti13" : "Cupti12";
                         });

TEST_F(ProbeCalls, WhereReadingMemoryIsDeniedThereAreNoPlaces) {
    ProbedProgram program(drive(), {{"DENY_READS", "1"}});
    if (program.hear() != "ready") GTEST_SKIP() << "system calls cannot be filtered here";
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kEventRecord, 0, 1000));
    ASSERT_EQ(program.ask("step 3"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.wait_for_work(3 * 6);
    ASSERT_EQ(program.of_kind(RecordKind::kCall).size(), 3u * 9);
    for (const Entry& call : program.of_kind(RecordKind::kCall))
        EXPECT_EQ(call.record.site, 0u) << "nobody has seen that frames can be read";
}

TEST_F(ProbeCalls, CopiesAndSetsSayWhatTheyMoved) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("step 1"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.wait_for_work(4);
    std::size_t copies = 0, sets = 0;
    for (const Entry& entry : program.of_kind(RecordKind::kWork)) {
        const record::Record& work = entry.record;
        if (work.what == static_cast<std::uint8_t>(WorkKind::kCopy)) {
            ++copies;
            EXPECT_EQ(work.bytes, 100'001u);
            EXPECT_EQ(work.from, static_cast<std::uint8_t>(MemoryKind::kPageable));
            EXPECT_EQ(work.to, static_cast<std::uint8_t>(MemoryKind::kDevice));
            EXPECT_EQ(work.correlation, program.calls(CallKind::kCopyAsync).at(0).record.correlation);
        }
        if (work.what == static_cast<std::uint8_t>(WorkKind::kSet)) {
            ++sets;
            EXPECT_EQ(work.bytes, 256u);
            EXPECT_EQ(work.to, static_cast<std::uint8_t>(MemoryKind::kDevice));
        }
    }
    EXPECT_EQ(copies, 1u);
    EXPECT_EQ(sets, 1u);
}

TEST_F(ProbeCalls, OnlyUploadsAndEventsHaveSomethingExtra) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
    ASSERT_EQ(program.ask("step 2"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    for (const Entry& call : program.of_kind(RecordKind::kCall)) {
        const auto kind = static_cast<CallKind>(call.record.what);
        EXPECT_EQ(call.record.extra != 0, kind == CallKind::kCopyAsync || kind == CallKind::kEventRecord)
            << int{call.record.what};
    }
    ASSERT_EQ(program.calls(CallKind::kFree).size(), 2u);
    EXPECT_EQ(program.calls(CallKind::kFree)[1].record.bytes, 1001u) << "what a free gives back";
}

TEST_F(ProbeCalls, GraphsAreShownByTheirNodesInEveryWindow) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    for (int window = 0; window < 2; ++window) {
        ASSERT_TRUE(program.command(ProbeMode::kFull));
        ASSERT_EQ(program.ask("step 2"), "done");
        ASSERT_TRUE(program.command(ProbeMode::kOff));
    }
    program.wait_for_work(24);
    std::vector<std::uint64_t> nodes;
    std::vector<std::uint32_t> launches, launched;
    for (const Entry& work : program.of_kind(RecordKind::kWork)) {
        if ((work.record.flags & record::kInGraph) == 0) continue;
        nodes.push_back(work.record.extra);
        launched.push_back(work.record.correlation);
    }
    for (const Entry& call : program.calls(CallKind::kGraphLaunch)) launches.insert(launches.end(), 2, call.record.correlation);
    EXPECT_EQ(nodes, (std::vector<std::uint64_t>{11, 12, 11, 12, 11, 12, 11, 12}));
    EXPECT_EQ(launched, launches);
}

TEST_F(ProbeCalls, ArgumentsShowPointersAndChangesOfTheRest) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
    ASSERT_EQ(program.ask("launch 2"), "done");
    ASSERT_EQ(program.ask("scale 0.25"), "done");
    ASSERT_EQ(program.ask("launch 1"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> found = program.of_kind(RecordKind::kArguments);
    const std::vector<Entry> memory = program.of_kind(RecordKind::kMemory);
    ASSERT_EQ(found.size(), 3u);
    ASSERT_EQ(memory.size(), 1u) << "what was taken before the window is known";
    EXPECT_EQ(memory[0].record.bytes, 4096u);
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].arguments.size(), 3u) << "a pointer, a number, and the hash";
        EXPECT_EQ(found[i].arguments[0].value, memory[0].record.extra);
        EXPECT_EQ(found[i].arguments[0].index, record::argument_index(0, 0, 8));
        EXPECT_NE(found[i].arguments[1].index & record::kNoPointer, 0u);
        EXPECT_EQ(record::argument_parameter(found[i].arguments[1].index), 1u);
        EXPECT_EQ(found[i].arguments[2].value, 0u);
        EXPECT_EQ(found[i].record.correlation, program.calls(CallKind::kLaunch)[i].record.correlation);
    }
    EXPECT_EQ(found[0].arguments[1].value, found[1].arguments[1].value);
    EXPECT_NE(found[1].arguments[1].value, found[2].arguments[1].value);
    EXPECT_EQ(found[0].arguments[2].index, found[1].arguments[2].index);
    EXPECT_NE(found[1].arguments[2].index, found[2].arguments[2].index);
}

TEST_F(ProbeCalls, ArgumentsInABlockAreReadAndFatesAreCounted) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
    ASSERT_EQ(program.ask("launch 3"), "done");
    ASSERT_EQ(program.ask("block"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> found = program.of_kind(RecordKind::kArguments);
    ASSERT_EQ(found.size(), 4u);
    ASSERT_EQ(found[3].arguments.size(), 2u);
    EXPECT_EQ(found[3].arguments[0].index, record::argument_index(8, 0, 8));
    const auto fate = [&](record::ArgumentFate one) {
        return program.header().state.arguments[static_cast<std::uint32_t>(one)].load();
    };
    EXPECT_EQ(program.header().state.sampled_launches.load(), 4u);
    EXPECT_EQ(fate(record::ArgumentFate::kTaken), 3u);
    EXPECT_EQ(fate(record::ArgumentFate::kTakenFromBuffer), 1u);
    EXPECT_EQ(fate(record::ArgumentFate::kRefused), 0u);
}

TEST_F(ProbeCalls, UploadsOfTheSameBytesHaveTheSameHash) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
    ASSERT_EQ(program.ask("step 2"), "done");
    ASSERT_EQ(program.ask("batch other"), "done");
    ASSERT_EQ(program.ask("step 1"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> uploads = program.calls(CallKind::kCopyAsync);
    ASSERT_EQ(uploads.size(), 3u);
    EXPECT_NE(uploads[0].record.extra, 0u);
    EXPECT_EQ(uploads[0].record.extra, uploads[1].record.extra);
    EXPECT_NE(uploads[1].record.extra, uploads[2].record.extra);
}

TEST_F(ProbeCalls, FailedCallsAreMarkedAndTakeNoMemory) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("fail"), "2");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    ASSERT_EQ(program.calls(CallKind::kAlloc).size(), 1u);
    EXPECT_EQ(program.calls(CallKind::kAlloc)[0].record.flags, record::kFailedCall);
    EXPECT_EQ(program.of_kind(RecordKind::kMemory).size(), 1u) << "only what was taken at the start";
}

TEST_F(ProbeCalls, ThreadsWithoutFramesAreNamed) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
    ASSERT_EQ(program.ask("bare_thread"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    ASSERT_EQ(program.calls(CallKind::kLaunch).size(), 1u);
    EXPECT_EQ(program.site(program.calls(CallKind::kLaunch)[0].record.site),
              (std::vector<Frame>{{"[thread]", "bare_thread", 0, true}}));
}

TEST_F(ProbeCalls, RangesOfTheProgramLieAroundItsCalls) {
    ProbedProgram program(drive(), {{"NVTX_INJECTION64_PATH", (build_folder() / "libmillrace-probe.so").string()}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_EQ(program.ask("ranges"), "0") << "outside of windows they leave no trace; one pop too many does no harm";
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("ranges"), "0");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    const std::vector<Entry> ranges = program.of_kind(RecordKind::kRange);
    ASSERT_EQ(ranges.size(), 2u);
    EXPECT_EQ(program.texts[ranges[0].record.id], "step");
    EXPECT_EQ(program.texts[ranges[1].record.id], "epoch");
    const record::Record launch = program.calls(CallKind::kLaunch).at(0).record;
    EXPECT_LE(ranges[1].record.begin, ranges[0].record.begin);
    EXPECT_LE(ranges[0].record.begin, launch.begin);
    EXPECT_LE(launch.end, ranges[0].record.end);
    EXPECT_LE(ranges[0].record.end, ranges[1].record.end);
    EXPECT_EQ(ranges[0].record.thread, launch.thread);
}

}  // namespace
}  // namespace millrace::probe
