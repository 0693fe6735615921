#pragma once
// The content of one checkpoint folder; the store above decides on names and links.

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace millrace::io {

/// One file of a checkpoint as state.json records it.
struct CheckpointFile {
    std::string path;  ///< relative to the checkpoint's folder
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
    std::uint64_t unpacked = 0;  ///< 0 when the file is not compressed
};

/// What state.json says about the checkpoint itself.
struct CheckpointState {
    std::uint64_t step = 0;
    std::uint64_t members = 0;
    std::vector<CheckpointFile> files;
    std::string text;
};
/// `place` names the file in errors.
Result<CheckpointState> parse_checkpoint_state(std::string text, const Path& place);

/// Fills the empty folder `folder` with the files of `checkpoint`, each synced, state.json last. Gives their bytes in all.
Result<std::uint64_t> write_checkpoint_files(const Path& folder, const Checkpoint& checkpoint);
/// Fills the empty folder `folder` with the models of `newest`, but for members that `keeps` names with those of `before`, both
/// folders of checkpoints of as many members. Files get a second name where the file system can, and are copied elsewhere.
Status gather_models(const Path& folder, const Path& newest, const Path& before, const std::vector<bool>& keeps);
/// Reads them back, each against its entry in state.json.
Result<LoadedCheckpoint> read_checkpoint_files(const Path& folder, LoadParts parts);

}  // namespace millrace::io
