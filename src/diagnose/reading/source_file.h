#pragma once
// Opens the source of the program that was diagnosed, when it is still where the recording says. A recording may name any file:
// only regular files of at most 4 MiB whose names are those of source code are opened.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"

namespace millrace::diagnose {

/// The text of a source; nothing when there is none.
std::optional<std::string> read_source(const std::string& name);

struct SourceFile {
    std::string text;
    bool changed = false;                   ///< since the trace was written
    std::string path{};                     ///< that opens it
    std::optional<std::int64_t> written{};  ///< when, in nanoseconds since 1970
};
/// The files that a name in a trace may stand for, the likeliest first.
using FindSources = std::function<std::vector<SourceFile>(const std::string& name)>;

/// A file beside the trace, and one of that name: PyTorch's profiler cuts off the folders that Python looks for modules in.
FindSources sources_of(const io::Path& trace);

}  // namespace millrace::diagnose
