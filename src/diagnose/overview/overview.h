#pragma once
// What was recorded as a whole. Nothing here judges.

#include "diagnose/answer/diagnosis.h"

namespace millrace::diagnose {

struct Study;

/// What the GPU computed: kernels by time, and runs of element-wise kernels that one kernel could replace. Times are plain sums
/// over everything that was recorded of the process and device with most work.
KernelTable table_of_kernels(const Study& study);

/// What a whole run took its time for, from samples of the thread that launches.
/// Each sample stands for the time until the next. Training is what runs through lines alone that training steps run through in
/// windows. What leaves them at some line and comes back to the model is evaluation; anything before the first training is
/// start-up; after the last, and where the thread is gone, other.
RunLedger ledger_of(const Study& study);

}  // namespace millrace::diagnose
