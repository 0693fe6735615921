#pragma once

namespace millrace::probe {

/// Opens what MILLRACE_PROBE_LOG names (a file to append to, "-" for the standard error); without it nothing is ever written.
void open_log();
__attribute__((format(printf, 1, 2))) void log_line(const char* format, ...);

}  // namespace millrace::probe
