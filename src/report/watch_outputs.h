#pragma once
// The files and ports a watch writes to.

#include <memory>
#include <vector>

#include "base/result.h"
#include "record/sinks.h"
#include "report/watch_session.h"
#include "sense/machine.h"

namespace millrace::report {

/// Opens every output the settings ask for, or says which one cannot be written. The plot is written at the end; here its folder
/// is looked at.
base::Result<std::vector<std::unique_ptr<record::Sink>>> open_outputs(const WatchSettings& settings,
                                                                      const sense::MachineFacts& facts);

}  // namespace millrace::report
