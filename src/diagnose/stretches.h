#pragma once
// What the device did at each moment: compute, communication or copy by priority, or nothing.

#include <vector>

#include "diagnose/diagnosis.h"
#include "diagnose/line.h"

namespace millrace::diagnose {

struct Stretch {
    Time begin = 0, end = 0;
    bool idle = false;
    Owner owner = Owner::kUnexplained;  ///< kCompute, kCommunication or kCopy where not idle
    std::uint32_t next_job = kNoIndex;  ///< of idle ones: the job that ended it; in a graph's pause that graph
    bool inside_job = false;            ///< idle between the nodes of one graph
};

/// Covers [begin, end) without holes, ascending.
std::vector<Stretch> device_stretches(const Timeline& timeline, const Lane& lane, Time begin, Time end);

}  // namespace millrace::diagnose
