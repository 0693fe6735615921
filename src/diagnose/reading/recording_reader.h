#pragma once
#include "diagnose/reading/kineto_reader.h"
#include "diagnose/reading/trace_reader.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

struct RecordingLimits {
    std::size_t records = std::size_t{1} << 25;  ///< kept at most; those behind are counted as dropped
    std::size_t words = std::size_t{1} << 24;    ///< of launches' parameters, until the kernels are known to which they belong
};

/// A run directory that `millrace record` wrote, finished, killed or going on: trace.bin, samples.jsonl and the manifest. Exit
/// status 4 when the recording is empty.
base::Result<Timeline> read_recording(const io::Path& folder, const ReadProgress& progress = {},
                                      const RecordingLimits& limits = {});

/// What trace.bin alone holds; times, processes, windows and everything in them.
base::Result<Timeline> read_trace(const TraceReader& trace, const RecordingLimits& limits = {});

}  // namespace millrace::diagnose
