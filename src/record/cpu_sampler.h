#pragma once
// What the threads of a program and of all it started are doing, looked at from outside a hundred times a second: their scheduler
// state, the system call they wait in, and their Python stack. The program is neither stopped nor changed.

#include <sys/types.h>

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

/// A process of the tree, when it appears and again when it has ended.
struct SeenProcess {
    std::uint32_t pid = 0, parent = 0;
    std::uint64_t appeared = 0, ended = 0;  ///< CLOCK_MONOTONIC; 0 not yet
    std::string command;
};

struct CpuSample {
    std::uint64_t time = 0;
    std::uint32_t pid = 0;
    std::uint32_t thread = 0;  ///< as the process itself numbers it (process_numbers.h), as in the probe's records
    char state = '?';
    std::string_view wait;  ///< lives for good
    SharedStack stack;      ///< null: none could be read
};

/// One look at all threads, without any clock or thread of its own.
class ThreadLook {
public:
    ThreadLook(pid_t root, std::string proc = "/proc") : proc_(std::move(proc)), tree_(proc_, root) {}

    /// Looks at the main threads of `busy` processes, and with `all` at every thread with Python code and every main thread.
    void look(std::uint64_t now, const std::set<std::uint32_t>& busy, bool all, std::vector<CpuSample>& samples);
    /// Walks the tree anew; processes that are new or have ended are added to `seen`.
    void walk(std::uint64_t now, std::vector<SeenProcess>& seen);
    [[nodiscard]] std::size_t processes() const { return members_.size(); }
    /// Loops of the functions that were seen since the last time.
    std::vector<FunctionLoops> take_loops() { return std::exchange(loops_, {}); }

private:
    struct Thread {
        sense::ProcFile stat, call;
        std::uint64_t state = 0;  ///< of the interpreter; 0: no Python
    };
    struct Member {
        SeenProcess about;
        std::uint32_t own_number = 0;  ///< what it is to itself
        std::optional<PythonProcess> python;
        int attempts = 0;                         ///< to find an interpreter: a program may map it late, or execute another one
        std::map<std::uint32_t, Thread> threads;  ///< by their own numbers
    };
    void attach(Member& member);
    void refresh_threads(Member& member);
    void look_at(Member& member, std::uint32_t number, Thread& thread, std::uint64_t now, std::vector<CpuSample>& samples);

    const std::string proc_;
    sense::ProcessTree tree_;
    std::map<std::uint32_t, Member> members_;
    std::size_t threads_ = 0;  ///< of all members
    std::vector<FunctionLoops> loops_;
    std::string buffer_;
};

/// Looks on a thread of its own, as often as looks are cheap (sampling_pace.h).
class CpuSampler {
public:
    explicit CpuSampler(pid_t root);

    /// Processes with a GPU: their main threads are looked at in every round.
    void set_busy(std::set<std::uint32_t> pids);
    /// Moves what was seen since the last call out; beyond 2^16 samples that were not moved out, new ones are dropped and
    /// counted.
    void take(std::vector<CpuSample>& samples, std::vector<SeenProcess>& processes);
    std::vector<FunctionLoops> take_loops();  ///< the same of what functions have
    [[nodiscard]] std::uint64_t dropped() const;
    void stop();

private:
    void loop(const std::stop_token& stop);

    ThreadLook look_;
    mutable std::mutex mutex_;  ///< guards what follows
    std::condition_variable_any wake_;
    std::set<std::uint32_t> busy_;
    std::vector<CpuSample> samples_;
    std::vector<SeenProcess> processes_;
    std::vector<FunctionLoops> loops_;
    std::uint64_t dropped_ = 0;
    std::jthread thread_;
};

}  // namespace millrace::record
