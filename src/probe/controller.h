#pragma once
// The probe's own thread: follows the control words of the mapping, switches CUPTI, flushes its buffers, watches whether `record`
// still lives. It blocks all signals and does not exist in forked children.

namespace millrace::probe {

/// Subscribes to CUPTI and starts the thread; what fails is left in the mapping's state. Call once.
void start_controller();
/// Leaves the window, flushes and ends the thread.
void stop_controller();

}  // namespace millrace::probe
