#pragma once
#include <string>

#include "io/file.h"

namespace millrace::record {

/// The absolute path of `path`. An error (exit status 2) unless it is a shared library for this machine's architecture with the
/// probe's entry point; nothing of it is executed.
base::Result<std::string> check_probe_library(const io::Path& path);

/// The probe (libmillrace-probe.so) in `folder`, ../lib, ../lib/millrace or .. as seen from there. An error has exit status 3.
base::Result<std::string> find_probe_library(const io::Path& folder);
/// The same for the folder of this program.
base::Result<std::string> find_probe_library();

}  // namespace millrace::record
