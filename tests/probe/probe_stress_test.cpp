// Threads that allocate and free as fast as they can while windows open and close: nothing may block, grow, or go uncounted.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "probed_program.h"

namespace millrace::probe {
namespace {

using record::CallKind;
using record::ProbeMode;
using record::RecordKind;

/// Five seconds, or what MILLRACE_STRESS_SECONDS says.
double stress_seconds() {
    const char* wanted = std::getenv("MILLRACE_STRESS_SECONDS");
    const double seconds = wanted != nullptr ? std::atof(wanted) : 0;
    return seconds > 0 ? seconds : 5;
}

std::uint64_t resident_bytes(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
    std::uint64_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// What was seen, without keeping it all.
struct Tally {
    std::uint64_t taken = 0, given = 0, calls = 0, pulses = 0, windows = 0, placeless = 0, strange = 0;
    std::map<std::uint64_t, int> held;  ///< by address: how often it was taken more than given back
    std::map<std::uint32_t, std::uint64_t> last_end;

    void take(ProbedProgram& program) {
        program.drain();
        for (const Entry& entry : program.entries) count(program, entry.record);
        program.entries.clear();
    }
    void count(const ProbedProgram& program, const record::Record& record) {
        const auto kind = static_cast<CallKind>(record.what);
        if (record.kind == RecordKind::kPulse) ++pulses;
        if (record.kind == RecordKind::kWindow) ++windows;
        if (record.kind == RecordKind::kMemory) {
            const bool takes = kind == CallKind::kAlloc;
            ++(takes ? taken : given);
            if (int& times = held[record.extra]; (times += takes ? 1 : -1) == 0) held.erase(record.extra);
        }
        if (record.kind != RecordKind::kCall || (kind != CallKind::kAlloc && kind != CallKind::kFree)) return;
        ++calls;
        const std::vector<Frame> frames = program.site(record.site);
        const bool in_order = record.begin <= record.end && record.begin >= std::exchange(last_end[record.thread], record.end);
        if (frames.empty()) ++placeless;
        if (!in_order || (!frames.empty() && frames[0].function != "churn")) ++strange;
    }
};

class ProbeStress : public ::testing::Test {
protected:
    void SetUp() override {
        if (interpreter().empty()) GTEST_SKIP() << "no Python interpreter";
    }
    /// The next order: all modes, with and without sites, windows that end by themselves.
    static void give_order(ProbedProgram& program, int turn) {
        switch (turn % 5) {
            case 0: ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kOther, 0, 1u << 30)); break;
            case 1: ASSERT_TRUE(program.command(ProbeMode::kPulse, CallKind::kAlloc)); break;
            case 2: ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kAlloc, 500, 100)); break;
            case 3: ASSERT_TRUE(program.command(ProbeMode::kOff)); break;
            case 4: ASSERT_TRUE(program.command(ProbeMode::kFull, CallKind::kFree, 3, 0)); break;
        }
    }
};

TEST_F(ProbeStress, TwoThreadsAllocateAndFreeThroughAllModes) {
    ProbedProgram program(drive());
    ASSERT_EQ(program.hear(), "ready");
    ASSERT_TRUE(program.attach());
    Tally tally;
    tally.take(program);
    const std::uint64_t before = tally.taken;
    const double seconds = stress_seconds();
    program.say("stress " + std::to_string(seconds));
    std::array<std::uint64_t, 2> rounds{}, at_turn{};
    std::uint64_t early_bytes = 0, stalled = 0;
    const auto begin = std::chrono::steady_clock::now();
    auto turned = begin;
    int turn = 0;
    for (;;) {
        std::istringstream line(program.hear());
        std::string word;
        ASSERT_TRUE(line >> word >> rounds[0] >> rounds[1]) << "the program is gone: " << line.str();
        tally.take(program);
        const auto now = std::chrono::steady_clock::now();
        if (early_bytes == 0 && now - begin > std::chrono::duration<double>(0.3 * seconds))
            early_bytes = resident_bytes(program.pid());
        if (word == "finished") break;
        if (now - turned < std::chrono::milliseconds(250)) continue;
        for (std::size_t thread = 0; thread < 2; ++thread) stalled += rounds[thread] == at_turn[thread] ? 1 : 0;
        at_turn = rounds;
        turned = now;
        give_order(program, turn++);
    }
    const std::uint64_t late_bytes = resident_bytes(program.pid());
    ASSERT_TRUE(program.command(ProbeMode::kOff));
    tally.take(program);
    const std::uint64_t all = rounds[0] + rounds[1], lost = program.lost();
    std::printf(
        "%.0f s: %llu and %llu rounds, %llu calls with sites, %llu pulses, %llu window marks, %llu lost, %.1f to %.1f MB\n",
        seconds, static_cast<unsigned long long>(rounds[0]), static_cast<unsigned long long>(rounds[1]),
        static_cast<unsigned long long>(tally.calls), static_cast<unsigned long long>(tally.pulses),
        static_cast<unsigned long long>(tally.windows), static_cast<unsigned long long>(lost),
        static_cast<double>(early_bytes) * 1e-6, static_cast<double>(late_bytes) * 1e-6);
    EXPECT_GT(rounds[0], 100u);
    EXPECT_GT(rounds[1], 100u);
    EXPECT_LT(stalled, static_cast<std::uint64_t>(turn)) << "turns without a round of one of two threads";
    EXPECT_EQ(tally.strange, 0u) << "calls out of order, or in another place";
    EXPECT_GT(tally.calls, 100u);
    EXPECT_GT(tally.pulses, 0u);
    EXPECT_GE(turn, 3);
    EXPECT_GE(tally.windows, static_cast<std::uint64_t>(3 * (turn / 5))) << "of five orders three open a window";
    // Every allocation and every free is there, in whatever mode, or counted as lost.
    EXPECT_LE(tally.taken - before, all);
    EXPECT_LE(tally.given, all);
    EXPECT_GE(tally.taken - before + tally.given + lost, 2 * all);
    if (lost == 0) {
        EXPECT_EQ(tally.held.size(), before) << "everything but the weights was given back";
        EXPECT_EQ(tally.placeless, 0u);
    }
    EXPECT_LT(late_bytes, early_bytes + 16'000'000) << "the probe's memory is bounded";
    const int status = program.finish();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << program.errors;
    EXPECT_EQ(program.errors, "");
}

}  // namespace
}  // namespace millrace::probe
