#pragma once
// The folder of a data set, of whatever kind.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "data/fields.h"
#include "io/file.h"

namespace millrace::data {

using base::Error;
using base::Result;
using base::Status;
using io::Path;

inline constexpr const char* kDescription = "dataset.json";

/// The last word of a folder's path: what a set without a name of its own is called.
std::string folder_name(const Path& folder);

enum class MakeOutcome { kWritten, kAlreadyThere };

/// The description of the folder's set, which was `made` in this very way; null where there is none. Refuses another.
Result<nlohmann::json> made_before(const Path& folder, const nlohmann::ordered_json& made);

/// What making a set says about a file that belongs to another.
Error foreign_set(const Path& place);

using MadeFiles = std::vector<std::pair<std::string, std::string>>;  ///< names and contents
/// Writes the files that are missing into `folder` (created when missing), each atomically and in this order. When all are there
/// nothing happens; when one holds something else nothing is written, and that is an error.
Result<MakeOutcome> write_made_files(const Path& folder, const MadeFiles& files);

/// A file in a folder that is named by its class: ROOT/CLASS/.../name.wav.
struct ClassFile {
    Path path;
    std::string name;  ///< below the root
    std::uint32_t label = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified = 0;  ///< ticks of the file system's clock
    Part part = Part::train;
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

/// The files of a set of recordings, by part.
inline constexpr std::array<const char*, kPartCount> kRecordingFiles{"TRAINING_DATASET.H5", "VALIDATION_DATASET.H5",
                                                                     "TESTING_DATASET.H5"};

}  // namespace millrace::data
