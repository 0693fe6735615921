#pragma once
#include <string_view>

namespace millrace::record {

/// The system call a thread is in, by the text of /proc/PID/task/TID/syscall: "futex", "poll"; "other" when it is none of those
/// that are worth a name, empty when the thread runs or the text is no such.
std::string_view system_call_in(std::string_view line);

}  // namespace millrace::record
