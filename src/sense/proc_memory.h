#pragma once
// Memory and swap of the machine, narrowed to the control group's limit where there is one.

#include <string>

#include "sense/cgroup.h"
#include "sense/proc_file.h"
#include "sense/sample.h"

namespace millrace::sense {

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
