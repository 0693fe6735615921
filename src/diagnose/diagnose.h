#pragma once
// The doctor: from what a program and its GPU did to where the time went and what to do about it.

#include "diagnose/answer/diagnosis.h"
#include "diagnose/answer/policy.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Never fails: what cannot be told is left out and named in `remarks`. A pure function of its arguments.
Diagnosis diagnose(const Timeline& timeline);

}  // namespace millrace::diagnose
