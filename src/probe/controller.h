#pragma once
// The probe's own thread: follows the control words of the mapping, switches CUPTI, flushes its buffers, watches whether `record`
// still lives. It blocks all signals and does not exist in forked children.

namespace millrace::probe {

/// Subscribes to CUPTI and starts the thread; what fails is left in the mapping's state. Call once. `at_end` calls
/// stop_controller() and may run several times: it is registered with atexit() again while CUPTI may register destructors.
void start_controller(void (*at_end)());
/// Leaves the window, flushes and ends the thread.
void stop_controller();

}  // namespace millrace::probe
