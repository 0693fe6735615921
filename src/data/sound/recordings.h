#pragma once
// Recordings in class folders: ROOT/CLASS/.../name.wav.

#include <cstdint>
#include <string>
#include <vector>

#include "data/folder.h"

namespace millrace::data {

struct RecordingFile {
    Path path;
    std::string name;  ///< below the root
    std::uint32_t label = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified = 0;  ///< ticks of the file system's clock
};
struct SkippedRecording {
    std::string name, reason;
};
struct RecordingFolder {
    std::vector<std::string> classes;  ///< sorted; those with at least one sound file
    std::vector<RecordingFile> files;  ///< by name: the order does not depend on the file system
    std::vector<SkippedRecording> skipped;
    std::uint64_t others = 0;  ///< files that are not called .wav or .flac
};

/// The folders directly below `root` are the classes; what lies in them at any depth and ends in .wav or .flac (in any case) is a
/// recording. Links are followed, but what is reached twice counts once, where it lies rather than where a link does: a copy must
/// not be trained on and tested with. Names that begin with a dot are passed over. Folders that cannot be listed and links to
/// nowhere are listed as skipped.
Result<RecordingFolder> find_recordings(const Path& root);

}  // namespace millrace::data
