#pragma once
// The content of one checkpoint folder; the store above decides on names and links.

#include <string>
#include <vector>

#include "record/checkpoint.h"

namespace millrace::record {

/// Fills the empty folder `folder` with the files of `checkpoint`, each synced, state.json last. Gives their bytes in all.
Result<std::uint64_t> write_checkpoint_files(const Path& folder, const Checkpoint& checkpoint);
/// Reads them back, each against its entry in state.json.
Result<LoadedCheckpoint> read_checkpoint_files(const Path& folder, LoadParts parts);

}  // namespace millrace::record
