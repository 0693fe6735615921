#pragma once
// Where a run begins: where one that goes on stands, and weights from elsewhere that a new one starts from (train --init).

#include <optional>

#include "base/recipe.h"
#include "base/result.h"
#include "io/checkpoint.h"
#include "record/run_directory.h"
#include "train/engine.h"
#include "train/run_state.h"

namespace millrace::train {

/// Without a checkpoint the run stands at its beginning.
struct Standing {
    std::optional<io::LoadedCheckpoint> checkpoint;
    RunState state;
    std::optional<base::Recipe> recipe = {};  ///< what the run goes on with: its structure may have changed since it was started
};

/// The newest checkpoint of `run` that is whole: what `last` names, or when that is damaged the newest before it, with a warning
/// that says what is damaged, why, and where it goes on. Without any, the run may begin anew only if it never saved one. Refuses
/// a checkpoint of another model or recipe. The caller holds the lock of the run.
base::Result<Standing> stand_of(const io::Path& run, const base::Recipe& recipe);

/// Puts a loaded state and its weights into the engine. Refuses a state that does not fit the engine's epoch.
base::Status restore(Engine& engine, const RunSettings& settings, const RunState& state, const io::LoadedCheckpoint& checkpoint);

/// Cuts the metrics to what belongs to a checkpoint with this offset. A file that was lost or cut holds back no healthy weights:
/// a warning, and it goes on with what it has.
base::Status cut_metrics(record::MetricsWriter& metrics, std::uint64_t offset);

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
