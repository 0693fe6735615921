#pragma once
// Files in folders that are named by their class: ROOT/CLASS/.../name.wav.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/folder.h"

namespace millrace::data {

struct ClassFile {
    Path path;
    std::string name;  ///< below the root
    std::uint32_t label = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified = 0;  ///< ticks of the file system's clock
};
struct SkippedFile {
    std::string name, reason;
};
struct ClassFolders {
    std::vector<std::string> classes;  ///< sorted; those with at least one file
    std::vector<ClassFile> files;      ///< by name: the order does not depend on the file system
    std::vector<SkippedFile> skipped;
    std::uint64_t others = 0;  ///< files with another ending
};

/// Whether the name ends in one of `endings` (".wav", in lower case), in any case.
bool has_ending(const Path& path, std::span<const std::string_view> endings);

/// The folders directly below `root` are the classes; what lies in them at any depth and has one of `endings` is taken. Links are
/// followed, but what is reached twice counts once, where it lies rather than where a link does: a copy must not be trained on
/// and tested with. Names that begin with a dot are passed over. Folders that cannot be listed and links to nowhere are listed as
/// skipped.
Result<ClassFolders> find_class_files(const Path& root, std::span<const std::string_view> endings);

/// Files with one of `endings` at `paths`, which are such files or folders; of a folder by their path, at any depth. Links are
/// followed, names that begin with a dot and what cannot be listed are passed over. Refuses a path without one; `what` they are.
Result<std::vector<Path>> find_files(const std::vector<Path>& paths, std::span<const std::string_view> endings, const char* what);

}  // namespace millrace::data
