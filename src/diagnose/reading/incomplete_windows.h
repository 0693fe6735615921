#pragma once
// CUPTI may deliver calls of a thread without the kernels that they launched. A window like that looks as if the GPU had idled.

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Leaves windows out in which a thread launched kernels and none of them ran, as long as others remain, and says so in the
/// remarks. Windows must be in order.
void leave_out_incomplete_windows(Timeline& timeline);

}  // namespace millrace::diagnose
