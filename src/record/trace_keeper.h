#pragma once
// The thread that moves what probes and samplers saw into the run directory while a command is recorded.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/cpu_sampler.h"
#include "record/probe_files.h"
#include "record/probed_process.h"
#include "record/record_session.h"
#include "record/trace_file.h"

namespace millrace::record {

class TraceKeeper {
public:
    /// Starts at once. `sampler` may be null. Everything is borrowed; what was seen goes to `outcome`, until finish().
    TraceKeeper(ProbeFolder& folder, TraceWriter& trace, EventWriter& events, CpuSampler* sampler,
                const ScheduleSettings& settings, RecordOutcome& outcome);

    /// Tells all probes that `record` lives, also when the disk holds the thread up. From another thread, a few times a second.
    void keep_alive();
    /// Bytes that others put into the run directory, for the budget.
    void set_other_bytes(std::uint64_t bytes) { other_bytes_ = bytes; }
    /// Takes what is left and joins the thread.
    void finish();

private:
    struct Entry {
        ProbedProcess process;
        io::Path mapping;
        std::uint64_t gone_at = 0;  ///< when its process ended; 0: it runs
    };
    void loop(const std::stop_token& stop);
    void tick(std::uint64_t now);
    void find_new(std::uint64_t now);
    void let_go(std::uint64_t now);
    void close(Entry& entry, std::uint64_t now);
    void take_samples(bool tight);
    void note_clock(std::uint64_t now);
    void note_process(const TraceProcess& process);
    void update_process(std::uint32_t pid, std::uint32_t main_thread);
    void count(const ProbedProcess& process, std::uint64_t now);

    ProbeFolder& folder_;
    TraceWriter& trace_;
    EventWriter& events_;
    CpuSampler* sampler_;
    const ScheduleSettings settings_;
    const std::uint64_t start_;
    std::atomic<std::uint64_t> other_bytes_ = 0;
    std::mutex entries_mutex_;  ///< held where the list changes and where another thread goes through it
    std::list<Entry> entries_;
    std::map<std::uint32_t, TraceProcess> processes_;
    std::unordered_map<const void*, std::pair<SharedStack, std::uint32_t>> stacks_;
    LoopTable loops_;
    std::uint64_t clock_at_ = 0, flushed_at_ = 0;
    std::string write_error_;
    RecordOutcome& outcome_;  ///< with the processes that are closed

    std::mutex mutex_;  ///< of the pauses
    std::condition_variable_any wake_;
    std::jthread thread_;
};

}  // namespace millrace::record
