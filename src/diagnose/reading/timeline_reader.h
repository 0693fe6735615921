#pragma once
#include "diagnose/reading/kineto_reader.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// Reads whatever `path` is: a run directory of `record` or of `train`, a trace of PyTorch's profiler (.json, .json.gz), or a
/// folder with one such trace. Exit status 2 for anything else, 4 for one of these without data.
base::Result<Timeline> read_timeline(const io::Path& path, const ReadProgress& progress = {});

}  // namespace millrace::diagnose
