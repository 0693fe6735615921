#pragma once
// Memory that CUPTI gives back when it is finalised is kept for good. It goes on to use some of it: in threads that are inside of
// it by then, and when it is used again, even by another client (seen with CUPTI 13.0: docs/performance/doctor.md).

namespace millrace::probe {

/// Leads what CUPTI's library frees through the probe; false when that cannot be done. From the probe's own thread.
bool can_keep_memory(void* library);
/// From now on nothing that it frees is given back.
void keep_memory();
/// From now on everything is.
void stop_keeping();

}  // namespace millrace::probe
