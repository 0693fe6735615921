#pragma once
// A study as the file of Optuna's JournalStorage: one JSON operation for each line. The only form that Optuna 3.1 (Debian 12)
// reads, too.

#include <span>

#include "io/file.h"
#include "storage/study.h"

namespace millrace::storage {

/// Replaces `path` as a whole. Times are local and without a zone, which every version of Optuna reads as meant. A paused trial
/// is a running one there, and a pruned one once its study has ended.
base::Status write_journal(const io::Path& path, const StudyDescription& study, std::span<const StoredTrial> trials);

}  // namespace millrace::storage
