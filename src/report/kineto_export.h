#pragma once
// Writes a timeline as Chrome JSON the way PyTorch's profiler does, for Perfetto, chrome://tracing and the tools that read those
// traces (HTA, TraceLens): launches and kernels joined by arrows, ProfilerStep#n for each step, rows for the diagnosis.
// diagnose/reading/kineto_reader.h reads it back as the same timeline, to the nanosecond: what the format has no place for is in
// the head, under "millrace", and in arguments of events.

#include <cstdint>
#include <span>
#include <vector>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/program/line.h"
#include "diagnose/timeline/timeline.h"
#include "io/file.h"

namespace millrace::report {

struct TraceExport {
    std::uint64_t size_cap = std::uint64_t{2} << 30;  ///< bytes before packing; viewers do not open larger ones
};

struct ExportedTrace {
    std::uint64_t events = 0, bytes = 0;  ///< before packing
    std::uint64_t left_out = 0;           ///< events behind the cap, the latest ones; the file is whole without them
};

/// The steps of all windows, in order of time.
std::vector<diagnose::Step> steps_of(const diagnose::Timeline& timeline);

/// Pours the trace into `sink`. Events come in order of time.
base::Result<ExportedTrace> write_trace(const diagnose::Timeline& timeline, std::span<const diagnose::Step> steps,
                                        const diagnose::Diagnosis& diagnosis, io::ByteSink& sink,
                                        const TraceExport& options = {});

/// Replaces `path` as a whole or not at all. Packed when the name ends in .gz (an error without zlib).
base::Result<ExportedTrace> export_trace(const diagnose::Timeline& timeline, const diagnose::Diagnosis& diagnosis,
                                         const io::Path& path, const TraceExport& options = {});

}  // namespace millrace::report
