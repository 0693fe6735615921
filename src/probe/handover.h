#pragma once
// The program may want CUPTI for itself: torch.profiler subscribes when it is first used, and without a subscription it shows no
// GPU for the rest of the run. So the program's own calls that begin such a use come through here, and the probe leaves for good
// before they go on.

namespace millrace::probe {

/// Programs may also count with CUPTI, which takes no subscription and bears the probe beside it; but not that CUPTI is
/// finalised.
bool counts_with_cupti();

/// Leads the calls of libraries that are loaded by now through the probe.
void watch_for_clients();
/// Whether a thread waits for the probe to leave.
bool handover_is_wanted();
/// It has left, or could not.
void end_handover();

}  // namespace millrace::probe
