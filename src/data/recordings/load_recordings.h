#pragma once
// Loads a folder of TRAINING_DATASET.H5 and, where they are there, VALIDATION_DATASET.H5 and TESTING_DATASET.H5. Each holds
//   segments_mel  [recordings, long windows, short windows of each, bands, 1], or with an axis of one channel more; F16 or F32
//   labels        [recordings], whole numbers
//   mel_mean, mel_std  [bands], optional: of the training part
// and the attribute labels_json, the names of the classes by label.

#include "data/folder.h"
#include "data/recordings/files.h"
#include "data/recordings/recording_set.h"

namespace millrace::data {

struct RecordingRequest {
    std::string positive = {};                    ///< the class that is looked for; empty: LEAK, or else label 1 of two
    bool binary = true;                           ///< that class against all others
    std::shared_ptr<const Scaling> scaling = {};  ///< instead of the folder's own
    bool resident = true;                         ///< false: features stay in their files, which stay open
};

/// Refuses files that do not fit together, labels without a name, features that are not finite, an unknown class.
Result<RecordingSet> load_recording_set(const Path& folder, const RecordingRequest& request);

/// What the set would take of device memory, by the headers of its files.
Result<std::uint64_t> resident_recording_bytes(const Path& folder);

}  // namespace millrace::data
