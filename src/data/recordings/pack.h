#pragma once
// A copy of a set of recordings whose training part is in random order, so that every window of a streamed set holds all classes.

#include "data/command.h"
#include "data/folder.h"

namespace millrace::data {

/// Copies the folder `in` to `out`: the recordings of TRAINING_DATASET.H5 in the order drawn by `seed`, with the layout and the
/// attributes of the file; the other two files as they are; recordings.csv with the new rows. Takes memory for a piece of 64 MiB.
/// All files appear together; a place that holds one of them is refused. Gives a line about it for people.
Result<std::string> pack_recordings(const Path& in, const Path& out, std::uint64_t seed, const CommandProgress& progress = {});

}  // namespace millrace::data
