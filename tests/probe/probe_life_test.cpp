// What becomes of the probe, and of the program, when things go otherwise: forks, exits, nobody who reads.

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "python_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeMode;
using record::RecordKind;

class ProbeLife : public PythonProgram {};

TEST_F(ProbeLife, ForkedChildIsInert) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("fork"), "7");
    EXPECT_EQ(program.header().state.ended.load(), 0u) << "the child's end is not the parent's";
    ASSERT_EQ(program.ask("launch 3"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    EXPECT_EQ(program.of_kind(RecordKind::kCall).size(), 3u) << "only the parent's";
    EXPECT_EQ(program.mappings().size(), 1u);
    EXPECT_EQ(exit_status(program.finish()), 0);
    EXPECT_EQ(program.header().state.ended.load(), 1u);
}

TEST_F(ProbeLife, ProgramThatReplacesItselfGetsASecondMapping) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    EXPECT_EQ(program.ask("exec"), "ready");
    EXPECT_EQ(program.mappings().size(), 2u);
    EXPECT_EQ(program.header().state.ended.load(), 0u);
    EXPECT_EQ(program.ask("step 1"), "done");
    EXPECT_EQ(exit_status(program.finish()), 0);
}

TEST_F(ProbeLife, SuddenExitKeepsWhatWasWritten) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 20"), "done");
    program.say("_exit");
    EXPECT_EQ(exit_status(program.finish()), 9);
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kLaunch).size(), 20u);
    EXPECT_EQ(program.header().state.ended.load(), 0u);
}

TEST_F(ProbeLife, KilledProgramLosesAtMostASecond) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("runaway"), "running");
    for (int beats = 0; beats < 200 && program.of_kind(RecordKind::kWork).size() < 100; ++beats) {
        program.beat();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        program.drain();
    }
    program.signal(SIGKILL);
    EXPECT_EQ(exit_status(program.finish()), -SIGKILL);
    program.drain();
    const std::vector<Entry> calls = program.of_kind(RecordKind::kCall), work = program.of_kind(RecordKind::kWork);
    ASSERT_GE(calls.size(), 100u);
    ASSERT_GE(work.size(), 100u);
    std::uint64_t last_call = 0, last_work = 0;
    for (const Entry& call : calls) last_call = std::max(last_call, call.record.end);
    for (const Entry& one : work) last_work = std::max(last_work, one.record.end);
    EXPECT_LT(last_call, last_work + 1'000'000'000u) << "buffers of devices are flushed as they fill";
}

TEST_F(ProbeLife, ExitStatusAndOutputAreTheProgramsOwn) {
    for (const bool probed : {true, false}) {
        ProbedProgram::Environment environment;
        if (!probed) environment["MILLRACE_PROBE_DIR"] = "-";
        ProbedProgram program(drive(), environment);
        ASSERT_EQ(program.hear(), "ready");
        if (probed) {
            ASSERT_TRUE(program.attach());
            ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1000));
        }
        ASSERT_EQ(program.ask("step 5"), "done");
        program.say("leave 3");
        EXPECT_EQ(exit_status(program.finish()), 3);
        EXPECT_EQ(program.rest, "");
        EXPECT_EQ(program.errors, "");
        EXPECT_EQ(program.mappings().size(), probed ? 1u : 0u) << "without a folder it does nothing";
    }
}

TEST_F(ProbeLife, WorkOfAnOpenWindowIsFlushedAtTheEnd) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 10"), "done");
    EXPECT_EQ(exit_status(program.finish()), 0);
    program.drain();
    EXPECT_EQ(program.of_kind(RecordKind::kWork).size(), 10u);
    EXPECT_EQ(program.of_kind(RecordKind::kWindow).size(), 2u);
}

TEST_F(ProbeLife, EndsBeforeDestructorsThatCuptiRegistersLater) {
    ProbedProgram program(drive(), {{"MOCK_CUPTI_LAZY", "1"}});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("launch 10"), "done");
    for (int beats = 0; beats < 200 && program.of_kind(RecordKind::kWork).size() < 10; ++beats) {
        program.beat();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        program.drain();
    }
    EXPECT_EQ(exit_status(program.finish()), 0);
    program.drain();
    EXPECT_EQ(program.of_kind(RecordKind::kWindow).size(), 2u);
}

TEST_F(ProbeLife, AllocatorsWithAndWithoutTheInterpretersLockDoNotBlockOneAnother) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1u << 30));
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(program.ask("allocators 500"), "done");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50));
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    EXPECT_EQ(program.calls(CallKind::kAlloc).size(), 2000u);
    EXPECT_EQ(program.calls(CallKind::kFree).size(), 2000u);
    std::set<std::uint64_t> held;
    std::set<std::uint32_t> threads;
    for (const Entry& memory : program.of_kind(RecordKind::kMemory)) threads.insert(memory.record.thread);
    EXPECT_EQ(threads.size(), 5u);
    for (const Entry& call : program.calls(CallKind::kAlloc)) {
        const std::vector<Frame> frames = program.site(call.record.site);
        ASSERT_FALSE(frames.empty());
        EXPECT_EQ(frames[0].function, "allocate");
    }
}

TEST_F(ProbeLife, ThreadsBeyondTheLanesAreCountedAndEndedOnesMakeRoom) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("threads 40"), "done");
    EXPECT_GT(program.lost(), 0u);
    const std::uint64_t lost = program.lost();
    ASSERT_EQ(program.ask("threads 20"), "done");
    EXPECT_EQ(program.lost(), lost) << "lanes of threads that ended are free again";
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    program.drain();
    EXPECT_GE(program.calls(CallKind::kLaunch).size(), 20u + 29);
    EXPECT_EQ(exit_status(program.finish()), 0);
}

TEST_F(ProbeLife, GoesOffForGoodWhenNobodyReadsAnyMore) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    program.header().control.keeper_time.store(1);  // long ago
    for (int tries = 0; tries < 2000 && program.header().state.mode.load() != 0; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(program.header().state.mode.load(), 0u);
    EXPECT_EQ(program.header().state.fault.load(), static_cast<std::uint32_t>(record::ProbeFault::kUnheard));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    program.drain();
    program.entries.clear();
    program.header().control.keeper_time.store(1);
    program.header().control.mode.store(2);
    program.header().control.epoch.fetch_add(1);
    program.say("step 20");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    program.drain();
    EXPECT_EQ(program.of_kind(RecordKind::kCall).size(), 0u);
    EXPECT_EQ(program.hear(), "done");
    EXPECT_EQ(exit_status(program.finish()), 0);
}

TEST_F(ProbeLife, KeeperThatWasStoppedWithTheProgramComesBack) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kLaunch));
    program.header().control.keeper_time.store(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    program.beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(program.header().state.mode.load(), 1u);
    EXPECT_TRUE(program.command(ProbeMode::kFull));
}

TEST_F(ProbeLife, InterpreterThatGoesDownUnderRunningThreadsDoesNoHarm) {
    for (int tries = 0; tries < 3; ++tries) {
        ProbedProgram program(drive());
        ASSERT_EQ(program.hear(), "ready");
        ASSERT_TRUE(program.attach());
        ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1u << 30));
        ASSERT_EQ(program.ask("daemon"), "done");
        ASSERT_EQ(program.ask("daemon"), "done");
        program.say("leave 4");
        EXPECT_EQ(exit_status(program.finish()), 4) << program.errors;
    }
}

TEST(ProbeWithoutPython, NativeStacksAreNamedAndUseAfterTheEndIsHarmless) {
    ProbedProgram program({(build_folder() / "probe_mock_program").string()});
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    EXPECT_EQ(program.header().state.python_version, 0u);
    ASSERT_TRUE(program.command(ProbeMode::kFull));
    ASSERT_EQ(program.ask("step"), "done");
    ASSERT_EQ(program.ask("step"), "done");
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    EXPECT_EQ(exit_status(program.finish()), 5) << "its exit handler made a hundred steps more";
    program.drain();
    const std::vector<Entry> waits = program.calls(CallKind::kDeviceSync);
    ASSERT_EQ(waits.size(), 2u);
    EXPECT_EQ(waits[0].record.site, waits[1].record.site);
    const std::vector<Frame> frames = program.site(waits[0].record.site);
    ASSERT_FALSE(frames.empty());
    EXPECT_TRUE(frames[0].native);
    EXPECT_EQ(frames[0].function, "make_step");
    EXPECT_NE(frames[0].file.find("probe_mock_program"), std::string::npos);
    EXPECT_NE(frames[0].line, 0u);
}

TEST(ProbeWithoutPython, ProgramWhoseFilesMayNotBeLongIsLeftAlone) {
    const std::string program_name = (build_folder() / "probe_mock_program").string();
    ProbedProgram program({"/bin/sh", "-c", "ulimit -f 16; exec \"$0\"", program_name});
    ASSERT_EQ(program.hear(), "ready") << "a signal has ended it";
    ASSERT_EQ(program.ask("step"), "done");
    EXPECT_TRUE(program.mappings().empty());
    EXPECT_EQ(exit_status(program.finish()), 5);
}

/// Names of the libraries a library needs, and of the symbols it takes from them.
void read_library(const std::filesystem::path& path, std::set<std::string>& needed, std::set<std::string>& undefined) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    ASSERT_GT(bytes.size(), sizeof(Elf64_Ehdr));
    const auto* head = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + head->e_shoff);
    for (int i = 0; i < head->e_shnum; ++i) {
        const char* strings = bytes.data() + sections[sections[i].sh_link].sh_offset;
        const char* data = bytes.data() + sections[i].sh_offset;
        if (sections[i].sh_type == SHT_DYNAMIC)
            for (std::size_t at = 0; at < sections[i].sh_size; at += sizeof(Elf64_Dyn)) {
                const auto* entry = reinterpret_cast<const Elf64_Dyn*>(data + at);
                if (entry->d_tag == DT_NEEDED) needed.insert(strings + entry->d_un.d_val);
            }
        if (sections[i].sh_type == SHT_DYNSYM)
            for (std::size_t at = 0; at < sections[i].sh_size; at += sizeof(Elf64_Sym)) {
                const auto* symbol = reinterpret_cast<const Elf64_Sym*>(data + at);
                if (symbol->st_shndx == SHN_UNDEF) undefined.insert(strings + symbol->st_name);
            }
    }
}

TEST(ProbeLibrary, NeedsTheCLibraryAlone) {
    std::set<std::string> needed, undefined;
    read_library(build_folder() / "libmillrace-probe.so", needed, undefined);
    EXPECT_TRUE(needed.count("libc.so.6") > 0);
    for (const std::string& name : needed)
        EXPECT_TRUE(name == "libc.so.6" || name == "libm.so.6" || name.rfind("ld-linux", 0) == 0) << name;
    EXPECT_GT(undefined.size(), 10u);
    for (const std::string& name : undefined) {
        EXPECT_NE(name.rfind("_Z", 0), 0u) << name;
        EXPECT_NE(name.rfind("__gxx_", 0), 0u) << name;
        EXPECT_TRUE(name.rfind("__cxa_", 0) != 0 || name == "__cxa_atexit" || name == "__cxa_finalize") << name;
    }
}

}  // namespace
}  // namespace millrace::probe
