#pragma once
#include "diagnose/reading/kineto_reader.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// A run directory that `millrace train` wrote. It has no trace, so neither calls nor work: blocks with their speed and the
/// loader's wait (rows of kind `interval`), and samples of the machine. Exit status 4 when it has neither.
base::Result<Timeline> read_training(const io::Path& folder, const ReadProgress& progress = {});

}  // namespace millrace::diagnose
