#pragma once
#include "diagnose/diagnosis.h"
#include "diagnose/policy.h"
#include "diagnose/timeline.h"

namespace millrace::diagnose {

/// Of a run of `train`, which has no trace: step time, the loader's wait, use of the GPU, memory at its edge, a GPU that slows
/// itself down. Whatever needs calls or kernels is left unsaid. A pure function of its arguments.
Diagnosis diagnose_training(const Timeline& timeline, const Policy& policy = {});

}  // namespace millrace::diagnose
