#include "record/cpu_sampler.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "record/elf_symbols.h"
#include "temporary_folder.h"

namespace millrace::record {
namespace {

/// A Python program that says when it has come where it is to be looked at, and then stays there.
class Script {
public:
    explicit Script(const std::string& text) {
        std::ofstream(folder_ / "script.py") << text;
        int ready[2];
        if (::pipe(ready) != 0) return;
        pid_ = ::fork();
        if (pid_ == 0) {
            ::setpgid(0, 0);  // with its own children it goes as a group
            ::dup2(ready[1], STDOUT_FILENO);
            ::execlp("python3", "python3", (folder_ / "script.py").c_str(), nullptr);
            ::_exit(127);
        }
        ::close(ready[1]);
        char byte = 0;
        works_ = ::read(ready[0], &byte, 1) == 1;
        ::close(ready[0]);
    }
    ~Script() {
        if (pid_ <= 0) return;
        ::kill(-pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Script(const Script&) = delete;
    Script& operator=(const Script&) = delete;
    [[nodiscard]] bool works() const { return works_; }
    [[nodiscard]] pid_t pid() const { return pid_; }

private:
    test::TemporaryFolder folder_;
    pid_t pid_ = -1;
    bool works_ = false;
};

constexpr const char* kThreads = R"(import os, sys, threading, time
def waits_here():
    time.sleep(1000)
def in_a_thread():
    waits_here()
threading.Thread(target=in_a_thread, daemon=True).start()
if os.fork() == 0:
    def worker():
        time.sleep(1000)
    worker()
def main_loop():
    while True: pass
time.sleep(0.05)
sys.stdout.write("x"); sys.stdout.flush()
main_loop()
)";

bool is_in(const CpuSample& sample, std::string_view function) {
    return sample.stack &&
           std::ranges::any_of(*sample.stack, [&](const TraceFrame& frame) { return frame.function == function; });
}

/// Looks until all three threads of kThreads are where they stay: other processes have to get there.
std::vector<CpuSample> look_until_settled(ThreadLook& look) {
    Sightings seen;
    for (int attempt = 0; attempt < 5000; ++attempt) {
        seen.samples.clear();
        look.walk(static_cast<std::uint64_t>(attempt + 1) * 1'000'000'000, seen);
        look.look(5, {}, true, seen);
        const auto settled = [&](const char* function) {
            return std::ranges::any_of(seen.samples, [&](const CpuSample& sample) { return is_in(sample, function); });
        };
        if (settled("main_loop") && settled("waits_here") && settled("worker")) break;
        ::usleep(2000);
    }
    return seen.samples;
}

TEST(CpuSampler, SeesStacksStatesAndSystemCallsOfTheTree) {
    const Script script(kThreads);
    if (!script.works()) GTEST_SKIP() << "no python3";
    const auto python = PythonProcess::attach(script.pid());
    if (!python) GTEST_SKIP() << "this interpreter is not understood, or its memory may not be read";
    ThreadLook look(script.pid());
    const std::vector<CpuSample> samples = look_until_settled(look);
    EXPECT_EQ(look.processes(), 2u);
    const auto first_in = [&](const char* function) {
        return std::ranges::find_if(samples, [&](const CpuSample& sample) { return is_in(sample, function); });
    };
    const auto loop = first_in("main_loop"), thread = first_in("waits_here"), worker = first_in("worker");
    ASSERT_NE(loop, samples.end());
    ASSERT_NE(thread, samples.end());
    ASSERT_NE(worker, samples.end());
    EXPECT_EQ(loop->pid, static_cast<std::uint32_t>(script.pid()));
    EXPECT_EQ(loop->thread, loop->pid);
    EXPECT_EQ(loop->stack->front().line, 12u);
    EXPECT_TRUE(loop->stack->front().file.ends_with("script.py"));
    EXPECT_EQ(thread->pid, loop->pid);
    EXPECT_NE(thread->thread, loop->thread);
    EXPECT_EQ(thread->state, 'S');
    EXPECT_TRUE(thread->wait == "clock_nanosleep" || thread->wait == "pselect6" || thread->wait == "select") << thread->wait;
    ASSERT_GE(thread->stack->size(), 2u);
    EXPECT_EQ((*thread->stack)[0].line, 3u);
    EXPECT_EQ((*thread->stack)[1].function, "in_a_thread");
    EXPECT_NE(worker->pid, loop->pid);
}

TEST(CpuSampler, MainThreadsOfBusyProcessesAloneInMostRounds) {
    const Script script(kThreads);
    if (!script.works()) GTEST_SKIP() << "no python3";
    ThreadLook look(script.pid());
    look_until_settled(look);
    Sightings seen;
    look.look(1, {}, false, seen);
    EXPECT_TRUE(seen.samples.empty());
    look.look(1, {static_cast<std::uint32_t>(script.pid())}, false, seen);
    ASSERT_EQ(seen.samples.size(), 1u);
    EXPECT_EQ(seen.samples[0].thread, static_cast<std::uint32_t>(script.pid()));
}

TEST(CpuSampler, ProgramWithoutPythonHasStatesAlone) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::execlp("sleep", "sleep", "100", nullptr);
        ::_exit(127);
    }
    ThreadLook look(child);
    Sightings seen;
    const std::vector<TraceProcess>& processes = seen.processes;
    for (int attempt = 0; attempt < 200 && (processes.empty() || processes.back().command != "sleep 100"); ++attempt) {
        look.walk(static_cast<std::uint64_t>(attempt + 1) * 1'000'000'000, seen);
        ::usleep(2000);
    }
    look.look(9, {}, true, seen);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_FALSE(processes.empty());
    EXPECT_EQ(processes.back().command, "sleep 100");
    EXPECT_EQ(processes.back().parent, static_cast<std::uint32_t>(::getpid()));
    ASSERT_EQ(seen.samples.size(), 1u);
    EXPECT_EQ(seen.samples[0].stack, nullptr);
    EXPECT_EQ(seen.samples[0].time, 9u);
    const std::size_t before = processes.size();
    look.walk(1'000'000'000'000, seen);
    ASSERT_EQ(processes.size(), before + 1);
    EXPECT_EQ(processes.back().ended, 1'000'000'000'000u);
    EXPECT_EQ(look.processes(), 0u);
}

TEST(CpuSampler, ThreadTakesSamplesUntilStopped) {
    const Script script(kThreads);
    if (!script.works()) GTEST_SKIP() << "no python3";
    CpuSampler sampler(script.pid());
    sampler.set_busy({static_cast<std::uint32_t>(script.pid())});
    std::vector<CpuSample> all;
    for (int attempt = 0; attempt < 5000 && all.size() < 20; ++attempt) {
        ::usleep(5000);
        std::ranges::move(sampler.take().samples, std::back_inserter(all));
    }
    sampler.stop();
    EXPECT_GE(all.size(), 20u);
    EXPECT_EQ(sampler.dropped(), 0u);
    EXPECT_TRUE(std::ranges::is_sorted(all, {}, &CpuSample::time));
}

TEST(ElfSymbols, FindsWhatIsThereAndRefusesTheRest) {
    const auto own = find_elf_symbols("/proc/self/exe", {"main", "nobody_has_this_symbol"});
    ASSERT_TRUE(own.ok()) << own.error().text();
    EXPECT_FALSE(own->values.contains("nobody_has_this_symbol"));
    const test::TemporaryFolder folder;
    std::ofstream(folder / "text") << "no ELF file, but long enough to hold the header of one: " << std::string(100, 'x');
    EXPECT_FALSE(find_elf_symbols(folder / "text", {"main"}).ok());
    EXPECT_FALSE(find_elf_symbols(folder / "missing", {"main"}).ok());
    std::ifstream program("/proc/self/exe", std::ios::binary);
    std::string head(4096, '\0');
    program.read(head.data(), 4096);
    std::ofstream(folder / "cut", std::ios::binary) << head;  // its section table lies behind the end
    EXPECT_FALSE(find_elf_symbols(folder / "cut", {"main"}).ok());
    for (std::size_t at = 16; at < 64; ++at) {
        std::string damaged = head;
        damaged[at] = static_cast<char>(0xff);
        std::ofstream(folder / "damaged", std::ios::binary | std::ios::trunc) << damaged;
        EXPECT_FALSE(find_elf_symbols(folder / "damaged", {"main"}).ok()) << at;
    }
}

TEST(SystemCallNames, LinesOfProcAreUnderstood) {
    EXPECT_EQ(system_call_in("running\n"), "");
    EXPECT_EQ(system_call_in("-1 0x7ff 0x7ff\n"), "");
    EXPECT_EQ(system_call_in(""), "");
    EXPECT_EQ(system_call_in("99999 0x0"), "other");
#if defined(__aarch64__)
    EXPECT_EQ(system_call_in("98 0x1 0x2"), "futex");
#elif defined(__x86_64__)
    EXPECT_EQ(system_call_in("202 0x1 0x2"), "futex");
#endif
}

}  // namespace
}  // namespace millrace::record
