#pragma once
// Samples of threads for viewers of profiles: speedscope's own format, and collapsed stacks, which flamegraph.pl, inferno and
// speedscope read. A sample stands for the time until its thread was looked at next. What a thread waits in is its innermost
// frame.

#include "diagnose/timeline/timeline.h"
#include "io/file.h"

namespace millrace::report {

/// One profile for each thread, those of a process one after another; times in nanoseconds.
base::Status write_speedscope(const diagnose::Timeline& timeline, io::ByteSink& sink);

/// A line for each different stack, outermost frame first: "python train.py (41);thread 41;main (train.py:7);[futex] 1200". The
/// number is microseconds.
base::Status write_collapsed(const diagnose::Timeline& timeline, io::ByteSink& sink);

}  // namespace millrace::report
