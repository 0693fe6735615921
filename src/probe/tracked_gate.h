#pragma once
// Keeps tracked calls (tracked_calls.h) apart from the moment in which CUPTI goes. Where it was finalised by its own callback, at
// the end of a call, the thread went on inside of it with memory that it had given back (docs/performance/doctor.md).

#include <cstdint>

namespace millrace::probe {

/// Around a tracked call. Waits while the gate is shut, but never for long.
void enter_tracked();
void leave_tracked();

/// Lets no further tracked call begin; true when none is under way. Waits for those at most so many ns.
bool shut_gate(std::uint64_t patience);
void open_gate();

}  // namespace millrace::probe
