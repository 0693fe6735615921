#pragma once
// Calls of the CUDA runtime that the program's libraries import (from libcudart.so), led through the probe: steps are counted and
// memory is followed while CUPTI is not in the process. A runtime inside of another library, as cuBLAS has one, is not reached;
// nor are calls of the driver.
//
// A gate keeps them apart from the moment in which CUPTI goes. Where it was finalised by its own callback, at the end of a call,
// the thread went on inside of it with memory that it had given back (docs/performance/doctor.md).

#include <cstdint>

namespace millrace::probe {

/// Leads the calls of libraries that are loaded by now through the probe. From the probe's own thread.
void track_calls();

/// Around a tracked call. Waits while the gate is shut, but never for long.
void enter_tracked();
void leave_tracked();

/// Lets no further tracked call begin; true when none is under way. Waits for those at most so many ns.
bool shut_gate(std::uint64_t patience);
void open_gate();

}  // namespace millrace::probe
