#pragma once
// The processor and memory as /proc and control groups show them: how busy each core was, load, quota, pressure; memory and swap,
// narrowed to the control group's limit where there is one.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sense/cgroup.h"
#include "sense/proc_file.h"
#include "sense/sample.h"

namespace millrace::sense {

/// "0-2,5" is 0 1 2 5, ascending. What does not parse ends the list.
std::vector<int> parse_core_list(std::string_view text);

/// The cores this process may use and that are online, ascending. The affinity in <proc>/self/status covers cpusets as well;
/// without it the cpuset's own file is asked, without that all cores of <proc>/stat count.
std::vector<int> usable_cores(const std::string& proc, const std::string& sys);

/// "Neoverse-V1", "AMD EPYC 7B13"; empty when /proc/cpuinfo says nothing.
std::string processor_name(const std::string& proc);

class ProcCpu {
public:
    /// `cores` as usable_cores() gives them; the order of CpuReading::cores.
    ProcCpu(const std::string& proc, const std::string& sys, std::vector<int> cores);

    /// Fills everything but process_utilization.
    void read(std::chrono::nanoseconds now, CpuReading& reading);

private:
    /// Ticks: user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user time.
    using Ticks = std::array<std::uint64_t, 8>;
    void read_stat(CpuReading& reading);

    std::vector<int> cores_;
    std::vector<std::optional<Ticks>> before_, now_;
    ProcFile stat_, load_, pressure_;
    CgroupCpu group_;
    std::string buffer_;
};

class ProcMemory {
public:
    ProcMemory(const std::string& proc, const std::string& sys);

    /// Fills everything but process_bytes. Used and available add up to the total; with a limit, available is the least that the
    /// machine and every group with a limit have left.
    void read(MemoryReading& reading);

private:
    ProcFile meminfo_;
    CgroupMemory group_;
    std::string buffer_;
};

}  // namespace millrace::sense
