#pragma once
// Reads traces of PyTorch's profiler (Chrome JSON as Kineto writes it), packed or not, and what report/kineto_export.h wrote.
// Memory is bounded by what the trace holds of interest, not by its size; docs of the format: profiler.export_chrome_trace.
//
// A trace that was cut (a full disk, a killed job) is read as far as it goes, with a remark in the timeline. One that is broken
// in its middle is an error with the place: what follows cannot be trusted.

#include <functional>
#include <string_view>

#include "diagnose/reading/kineto_collector.h"
#include "diagnose/timeline/timeline.h"
#include "io/packing.h"

namespace millrace::diagnose {

/// Gets the share that was read, 0 to 1.
using ReadProgress = std::function<void(double)>;

/// Exit status 2 for what is no trace, 4 for a trace without any event of interest. Lines of calls are looked for in the sources
/// that the trace names (diagnose/reading/call_lines.h).
base::Result<Timeline> read_kineto(const io::Path& path, const ReadProgress& progress = {}, const KinetoLimits& limits = {});
/// The same from anything; `place` names it in errors. Opens no files but by `sources`.
base::Result<Timeline> read_kineto(io::ByteSource& source, const io::Path& place, const ReadProgress& progress = {},
                                   const KinetoLimits& limits = {}, const FindSources& sources = {});

}  // namespace millrace::diagnose
