#pragma once
// What the threads of a program and of all it started are doing, looked at from outside a hundred times a second: their scheduler
// state, the system call they wait in, and their Python stack. The program is neither stopped nor changed.

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "record/python_process.h"
#include "sense/proc_file.h"
#include "sense/process_tree.h"

namespace millrace::record {

/// How often threads are looked at. Main threads of programs with a GPU come in every round, all others in some; either kind gets
/// rarer by itself where a look takes long, so that ten busy loader workers do not hide what the training thread waits for.
class SamplingPace {
public:
    using nanoseconds = std::chrono::nanoseconds;
    static constexpr nanoseconds kSlowestRound = std::chrono::milliseconds{160};  ///< from look to look, at most

    /// Whether the next look is at all threads.
    [[nodiscard]] bool is_for_all() const { return since_ >= every_; }
    /// The next look is over and took so long.
    void looked(nanoseconds took) {
        const bool all = is_for_all();
        (all ? all_ : main_).add(took);
        since_ = all ? 1 : since_ + 1;
        round_ = std::clamp(times(main_.shorter(), kMainShare), kRound, kSlowestRound);
        const auto wanted = times(all_.shorter(), kAllShare) / round_ + 1;
        every_ = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, kAllEvery, std::max(kAllEvery, kSeldom / round_)));
    }
    [[nodiscard]] nanoseconds round() const { return round_; }     ///< from look to look
    [[nodiscard]] std::uint64_t rounds() const { return every_; }  ///< from one look at all to the next

private:
    static constexpr nanoseconds kRound = std::chrono::milliseconds{10};
    static constexpr std::int64_t kAllEvery = 5;  ///< 20 Hz
    static constexpr nanoseconds kSeldom = std::chrono::milliseconds{800};
    static constexpr double kMainShare = 0.2, kAllShare = 0.06;  ///< of the time, at most: no core's that the program needs

    /// The shorter of the last two: a look that was interrupted says nothing.
    struct Looks {
        nanoseconds last{}, before{};
        void add(nanoseconds took) { before = last, last = took; }
        [[nodiscard]] nanoseconds shorter() const { return std::min(last, before); }
    };
    static nanoseconds times(nanoseconds took, double share) {
        return nanoseconds{static_cast<std::int64_t>(static_cast<double>(took.count()) / share)};
    }

    Looks main_, all_;
    nanoseconds round_ = kRound;
    std::uint64_t every_ = kAllEvery;
    std::uint64_t since_ = kAllEvery;  ///< rounds since the last look at all; the first is one
};

/// The system call a thread is in, by the text of /proc/PID/task/TID/syscall: "futex", "poll"; "other" when it is none of those
/// that are worth a name, empty when the thread runs or the text is no such.
std::string_view system_call_in(std::string_view line);

struct CpuSample {
    std::uint64_t time = 0;
    std::uint32_t pid = 0;
    std::uint32_t thread = 0;  ///< as the process itself numbers it (process_numbers.h), as in the probe's records
    char state = '?';
    std::string_view wait;  ///< lives for good
    SharedStack stack;      ///< null: none could be read
};

/// What was seen since the last time.
struct Sightings {
    std::vector<CpuSample> samples;
    std::vector<TraceProcess> processes;  ///< each when it appears and again when it has ended
    std::vector<FunctionLoops> loops;     ///< of functions in the stacks
};

/// One look at all threads, without any clock or thread of its own.
class ThreadLook {
public:
    ThreadLook(pid_t root, std::string proc = "/proc") : proc_(std::move(proc)), tree_(proc_, root) {}

    /// Looks at the main threads of `busy` processes, and with `all` at every thread with Python code and every main thread.
    void look(std::uint64_t now, const std::set<std::uint32_t>& busy, bool all, Sightings& seen);
    /// Walks the tree anew, for processes that are new or have ended.
    void walk(std::uint64_t now, Sightings& seen);
    [[nodiscard]] std::size_t processes() const { return members_.size(); }

private:
    struct Thread {
        sense::ProcFile stat, call;
        std::uint64_t state = 0;  ///< of the interpreter; 0: no Python
    };
    struct Member {
        TraceProcess about;
        std::uint32_t own_number = 0;  ///< what it is to itself
        std::optional<PythonProcess> python;
        int attempts = 0;                         ///< to find an interpreter: a program may map it late, or execute another one
        std::map<std::uint32_t, Thread> threads;  ///< by their own numbers
    };
    void attach(Member& member);
    void refresh_threads(Member& member);
    void look_at(Member& member, std::uint32_t number, Thread& thread, std::uint64_t now, Sightings& seen);

    const std::string proc_;
    sense::ProcessTree tree_;
    std::map<std::uint32_t, Member> members_;
    std::size_t threads_ = 0;  ///< of all members
    std::string buffer_;
};

/// Looks on a thread of its own, as often as looks are cheap.
class CpuSampler {
public:
    explicit CpuSampler(pid_t root);

    /// Processes with a GPU: their main threads are looked at in every round.
    void set_busy(std::set<std::uint32_t> pids);
    /// What was seen since the last call; beyond 2^16 samples that were not taken, new ones are dropped and counted.
    Sightings take();
    [[nodiscard]] std::uint64_t dropped() const;
    void stop();

private:
    void loop(const std::stop_token& stop);

    ThreadLook look_;
    mutable std::mutex mutex_;  ///< guards what follows
    std::condition_variable_any wake_;
    std::set<std::uint32_t> busy_;
    Sightings seen_;
    std::uint64_t dropped_ = 0;
    std::jthread thread_;
};

}  // namespace millrace::record
