#pragma once
// What devices did: CUPTI's buffers of activity records become records.

#include <cstdint>

#include "probe/cupti_library.h"

namespace millrace::probe {

bool prepare_activity();
/// Registers buffers and the clock; call before anything is enabled.
void register_activity(const Cupti& cupti);
/// Without a registered clock: finds how far CUPTI's is from ours. Call at the beginning of windows.
void align_clocks(const Cupti& cupti);

/// How many records CUPTI has handed over so far.
std::uint64_t delivered_records();
std::uint64_t delivered_kernels();

}  // namespace millrace::probe
