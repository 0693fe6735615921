#pragma once
// The control groups this process lives in, version 1 and 2. Limits of every ancestor hold; each is read where it was set.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sense/proc_file.h"

namespace millrace::sense {

/// The folders of one controller from our own group up to the mount, the own group first.
/// `membership` is the text of /proc/self/cgroup, `sys` the root of /sys. A group whose path does not exist below the mount (a
/// container that sees the host's path and only its own group) is taken to be the mount itself.
struct CgroupFolders {
    bool version2 = false;
    std::vector<std::string> folders;  ///< empty when the controller is not there
};
CgroupFolders find_cgroup(std::string_view membership, const std::string& sys, std::string_view controller);

/// Memory limits.
class CgroupMemory {
public:
    CgroupMemory() = default;
    explicit CgroupMemory(const CgroupFolders& where);

    struct Reading {
        std::optional<double> limit_bytes;  ///< the smallest below `machine_total`
        std::optional<double>
            available_bytes;  ///< the least that any group with such a limit has left, its file pages counted as free
        std::optional<double> file_bytes;  ///< page cache of the group with the smallest limit
    };
    Reading read(double machine_total, std::string& buffer);

private:
    struct Group {
        ProcFile limit, usage, stat;
    };
    std::vector<Group> groups_;
};

/// CPU quotas.
class CgroupCpu {
public:
    CgroupCpu() = default;
    explicit CgroupCpu(const CgroupFolders& where);

    struct Reading {
        std::optional<double> limit_cores;        ///< the smallest quota
        std::optional<double> throttled_percent;  ///< see CpuReading; of the group with that quota
    };
    Reading read(std::chrono::nanoseconds now, std::string& buffer);

private:
    struct Group {
        ProcFile quota, period, stat;
    };
    struct Quota {
        double cores = 0, period_seconds = 0;
    };
    std::optional<Quota> quota_of(Group& group, std::string& buffer) const;

    bool version2_ = false;
    std::vector<Group> groups_;
    struct Before {
        std::size_t group = 0;
        std::uint64_t throttled = 0;
        std::chrono::nanoseconds time{};
    };
    std::optional<Before> before_;
};

}  // namespace millrace::sense
