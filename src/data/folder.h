#pragma once
// The folder of a data set, of whatever kind.

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
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

/// What making a set says about a file that belongs to another.
Error foreign_set(const Path& place);

using MadeFiles = std::vector<std::pair<std::string, std::string>>;  ///< names and contents
/// Writes the files that are missing into `folder` (created when missing), each atomically and in this order. When all are there
/// nothing happens; when one holds something else nothing is written, and that is an error.
Result<MakeOutcome> write_made_files(const Path& folder, const MadeFiles& files);

}  // namespace millrace::data
