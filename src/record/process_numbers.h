#pragma once
// A program in a PID namespace of its own (a container) gives its processes and threads other numbers than we do. Records of the
// probe have its numbers; /proc has ours.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace millrace::record {

/// The number that a process or a thread has for itself, by the text of its status file; absent when the text has none.
std::optional<std::uint32_t> own_number(std::string_view status);
/// The same of a process with our number `pid`; `pid` when it cannot be read.
std::uint32_t own_number_of(std::uint32_t pid, const std::string& proc = "/proc");
/// Our numbers of the threads of a process, by their own.
std::map<std::uint32_t, std::uint32_t> threads_by_own_number(std::uint32_t pid, const std::string& proc = "/proc");

/// Our number of the process that has mapped `file` and has the number `own` for itself; `own` when there is no such process, as
/// it may have ended.
std::uint32_t find_owner(const io::Path& file, std::uint32_t own, const std::string& proc = "/proc");

}  // namespace millrace::record
