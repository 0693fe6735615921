#pragma once
// `millrace diagnose --html`: one file that explains to a reader who has never seen a profiler what share of the time the GPU
// worked, where the rest went, and which line to change.

#include <string>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::report {

/// A whole document that loads nothing. What comes from the recording is text in it, never markup. `timeline` adds what ran in
/// the typical and the worst step and the curves of the machine; an empty one leaves them out.
std::string diagnosis_html(const diagnose::Diagnosis& diagnosis, const diagnose::Timeline& timeline);

}  // namespace millrace::report
