#pragma once
#include <sched.h>

#include <algorithm>
#include <thread>

namespace millrace::base {

/// Processes that started together and may use the same processors. Set once, before other threads ask.
inline int processor_sharers = 1;

/// Processors that are this process's to use: mpirun and srun bind ranks to some of the machine's, which
/// std::thread::hardware_concurrency() does not see, and ranks with the same ones share them.
inline int usable_processors() {
    cpu_set_t set;
    const bool is_known = sched_getaffinity(0, sizeof set, &set) == 0;
    const int processors = is_known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
    return std::max(1, processors / processor_sharers);
}

}  // namespace millrace::base
