#pragma once
// Weights from elsewhere that a new run starts from (train --init).

#include "base/result.h"
#include "io/checkpoint.h"
#include "record/run_directory.h"

namespace millrace::train {

struct InitialWeights {
    io::LoadedCheckpoint weights;  ///< of a file: one member, no state
    record::WeightsOrigin origin;  ///< the checkpoint's folder or the file, as an absolute path
};

/// `from` is a run directory (its best weights, else its newest checkpoint that is whole), a checkpoint's folder, or a
/// safetensors file.
base::Result<InitialWeights> load_initial_weights(const io::Path& from);

/// The same of a run that noted where its weights came from. Refuses other weights than those.
base::Result<InitialWeights> reload_initial_weights(const record::WeightsOrigin& origin);

}  // namespace millrace::train
