#pragma once
// What the leak detector's entry in the registry is made of.

#include "data/command.h"
#include "models/capabilities.h"
#include "models/leak_cnn/leak_cnn.h"

namespace millrace::models {

/// From the keys of a recipe.
base::Result<LeakCnnConfig> leak_cnn_config(const base::Recipe& recipe, const data::Fields& fields);

/// `millrace data build-leak`: the family's data from recordings in class folders; `pack`: mixed for streaming.
data::DataCommand build_leak_command();
data::DataCommand pack_command();

/// One row for each WAV and FLAC file at any depth below `request.in`, by name; a file that cannot be read has its error as note.
/// Columns are named after the class that is looked for: "is_leak".
base::Result<ClassifyReport> classify_sounds(const ClassifyRequest& request);

}  // namespace millrace::models
