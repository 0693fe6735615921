#pragma once
// Keeps led calls (led_calls.h) apart from the moment in which CUPTI goes. Where it was finalised by its own callback, at the end
// of a call, the thread went on inside of it with memory that it had given back (docs/performance/doctor.md).

#include <cstdint>

namespace millrace::probe {

/// Around a led call. Waits while the gate is shut, but never for long.
void enter_led();
void leave_led();

/// Lets no further led call begin; true when none is under way. Waits for those at most so many ns.
bool shut_led(std::uint64_t patience);
void open_led();

}  // namespace millrace::probe
