#pragma once
// A process and everything it started: processor time, memory, threads, reads and writes.
//
// What ended processes did must neither be lost nor counted twice. The kernel hands the time and the transfers of a process to
// its parent when that one waits for it. So each process is credited with what its own counters grew by, and the growth through
// children that were waited for is reduced by what had been credited to them while they lived. Credits are never negative, so
// rates are not either; work of a process that is not waited for (SIGCHLD ignored) after it was last seen is lost.

#include <sys/types.h>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sense/proc_file.h"
#include "sense/sample.h"

namespace millrace::sense {

/// What one line of /proc/<pid>/stat says.
struct ProcessStat {
    pid_t parent = 0;
    char state = '?';
    std::uint64_t own_ticks = 0;     ///< user and system time
    std::uint64_t waited_ticks = 0;  ///< of children waited for
    std::uint64_t threads = 0, started = 0, resident_pages = 0;
};
/// Names may hold blanks and brackets. Absent when the line is cut off or not one.
std::optional<ProcessStat> parse_process_stat(std::string_view text);

class ProcessTree {
public:
    /// `root` and its descendants, present and future; a descendant stays a member when its parent dies. With
    /// `ticks_per_second` and `page_bytes` 0 the system's own are used.
    ProcessTree(std::string proc, pid_t root, double ticks_per_second = 0, double page_bytes = 0);

    struct Reading {
        ProcessReading process;
        DiskReading disk;
        std::optional<double> utilization, resident_bytes;
    };
    /// Everything is absent when no member can be read.
    Reading read(std::chrono::nanoseconds now);

    /// The members that the last read found alive, ascending.
    [[nodiscard]] const std::vector<pid_t>& members() const { return alive_; }

private:
    /// Counters of a process. Transfers include those of children waited for.
    enum Quantity { kOwnTicks, kWaitedTicks, kRequested, kFetched, kWritten, kQuantities };
    using Counters = std::array<std::uint64_t, kQuantities>;
    struct Member {
        ProcFile stat, io;
        ProcessStat now;
        Counters seen{}, fresh{};
        /// What had been credited to children that vanished: in this reading, and left over from the one before. A child may
        /// vanish after its parent was read, so the parent's counters show it one reading later at the latest.
        Counters debt{}, carried{};
        bool alive = false, is_new = true, seen_io = false, fresh_io = false;
    };
    using Work = std::array<double, kQuantities>;

    void discover();
    void append_children(pid_t pid, std::vector<pid_t>& queue);
    void scan_parents();
    bool walk_is_due(std::chrono::nanoseconds now) const;
    void read_member(Member& member);
    void settle_vanished();
    void credit(Member& member);
    void fill_rates(std::chrono::nanoseconds now, Reading& reading);

    std::string proc_;
    pid_t root_;
    double ticks_per_second_, page_bytes_;
    bool has_children_files_;
    std::map<pid_t, Member> members_;
    std::vector<pid_t> order_;                      ///< parents before children
    std::vector<std::pair<pid_t, pid_t>> parents_;  ///< (parent, child) of the whole machine, sorted, from the last scan
    std::vector<pid_t> alive_;
    std::size_t walk_files_ = 0;  ///< opened by the last walk
    std::optional<std::chrono::nanoseconds> read_before_, walked_;
    double walk_seconds_ = 0;         ///< between the last two walks
    Work known_work_{}, new_work_{};  ///< since the last reading; of members found since the last walk
    bool any_io_ = false;
    std::string buffer_;
};

}  // namespace millrace::sense
